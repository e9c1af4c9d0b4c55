// ParameterServer: one parameter server of a cluster. Has its variables, and serves all workers, each on
// a thread. Server 0 also decides about tickets and steps (UpdateSchedule), and adds up the losses.
//
// Threads:   run() on one thread, which starts and joins the others.
// Blocking:  run() until the chief ends the run, an error, or a stop.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    run(): kCorrupt: a gradient is not finite. kInternal. kPeerLost: the store is lost.
//            kCancelled: stopped. kPeerLost: another server is lost. A worker that is lost is waited for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "daemon/group/pair_connection.h"
#include "daemon/group/tcp_store.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/meeting.h"
#include "daemon/parameter_server/messages.h"
#include "daemon/parameter_server/update_schedule.h"
#include "daemon/parameter_server/variable_store.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

struct ServerOptions {
  ClusterTask task;
  UpdateOptions updates;
  std::function<bool(uint64_t step)> is_recorded;  // whether a metrics record ends with this step
  Meeting meeting;
};

class ParameterServer {
 public:
  ParameterServer(ServerOptions options, VariableStore variables);

  Status run(const std::stop_token& stop);

 private:
  bool is_first() const { return options_.task.index == 0; }
  Status serve_worker(size_t worker, const std::stop_token& stop);
  Status watch_server(size_t other, const std::stop_token& stop);
  Status serve_life(const WorkerLife& life, group::TcpStore& store, const std::stop_token& stop);
  Status serve_requests(const WorkerLife& life, group::PairConnection& connection,
                        const std::stop_token& stop);
  Status serve(const WorkerLife& worker, const Header& request, group::PairConnection& connection,
               const std::stop_token& stop);
  Status initialize(const Header& request, group::PairConnection& connection,
                    const std::stop_token& stop);
  Status claim(const WorkerLife& worker, group::PairConnection& connection,
               const std::stop_token& stop);
  Status pull(const Header& request, bool with_state, group::PairConnection& connection,
              const std::stop_token& stop);
  Status push(const WorkerLife& worker, const Header& request, group::PairConnection& connection,
              const std::stop_token& stop);
  Result<PushResult> update(const WorkerLife& worker, const Header& request,
                            const at::Tensor& gradients);
  void complete_step();
  void fail(const Status& failure);

  // Constant after construction.
  const ServerOptions options_;
  const int64_t parameter_bytes_;
  const int64_t state_bytes_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  VariableStore variables_;
  UpdateSchedule schedule_;           // only of server 0
  std::map<uint64_t, Sums> of_step_;  // of the micro-batches of the current step, by ticket
  Sums interval_;                     // of the steps since the last record
  std::deque<std::pair<uint64_t, Sums>> records_;  // with their step; not taken yet
  bool has_ended_ = false;
  Status failure_;
  std::stop_source stop_serving_;
};

}  // namespace stoker::parameter_server
