// ParameterServer: one parameter server of a cluster. Has its variables, and serves all workers, each on
// a thread. Server 0 also decides about tickets and steps (UpdateSchedule), and adds up the losses.
//
// Threads:   run() on one thread, which starts and joins the others.
// Blocking:  run() until the chief ends the run, an error, or a stop.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    run(): kCorrupt: a gradient is not finite. kBusy: a thread cannot be created. kInternal.
//            kPeerLost: the store or another server is lost, the chief has not started in time, or a task has
//            announced its failure. kClosed: the chief has not started because the run has ended. kCancelled:
//            stopped. A worker that is lost is waited for; so is one whose request is invalid.
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
#include <thread>
#include <utility>
#include <vector>

#include "daemon/group/pair_connection.h"
#include "daemon/group/tcp_store.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/meeting.h"
#include "daemon/parameter_server/messages.h"
#include "daemon/parameter_server/setting_history.h"
#include "daemon/parameter_server/update_schedule.h"
#include "daemon/parameter_server/variable_store.h"
#include "shared/base/status.h"
#include "shared/run/run_state.h"

namespace stoker::parameter_server {

struct ServerOptions {
  ClusterTask task;
  UpdateOptions updates;
  std::function<bool(uint64_t step)> is_recorded;  // whether a metrics record ends with this step
  // For the updates that follow; the next version in order. Returns train.max_steps.
  std::function<Result<uint64_t>(const SettingsVersion& version)> apply_settings;
  Meeting meeting;
  int64_t untrained_bytes = 0;  // server 0: of the parameters that are not trained, for all workers
  // Throws std::system_error if the system has no more threads.
  std::function<std::jthread(std::function<void()> body)> start_thread =
      [](std::function<void()> body) { return std::jthread(std::move(body)); };
};

class ParameterServer {
 public:
  ParameterServer(ServerOptions options, VariableStore variables);

  Status run(const std::stop_token& stop);
  // Of another thread: the process is to stop. If the chief is present, it is given time to save and to end
  // the run; run() then returns as if the chief had been stopped alone. Otherwise kCancelled immediately.
  void request_end(std::chrono::milliseconds grace);
  // After run() without an error: as the chief has ended the run.
  run::RunOutcome outcome() const { return outcome_; }
  uint64_t step() const { return variables_.step(); }  // after run()

 private:
  bool is_first() const { return options_.task.index == 0; }
  bool is_over() const;  // mutex_ is locked
  void wait_for_end(group::Store& store, const std::stop_token& serving);
  Status start_threads(std::vector<std::jthread>& threads);
  Status serve_worker(size_t worker, const std::stop_token& stop);
  Status watch_server(size_t other, const std::stop_token& stop);
  Status serve_life(const WorkerLife& life, group::TcpStore& store, const std::stop_token& stop);
  Status serve_requests(const WorkerLife& life, group::Store& store,
                        group::PairConnection& connection, const std::stop_token& stop);
  Status serve(const WorkerLife& worker, const Header& request, group::Store& store,
               group::PairConnection& connection, const std::stop_token& stop);
  Status apply_settings(uint64_t version, group::Store& store);
  Header with_version(Header reply) const;  // mutex_ is locked
  Status check_request(const WorkerLife& worker, const Header& request);
  Status commit(const Header& request);
  Status read_step_norms(uint64_t step, group::PairConnection& connection,
                         const std::stop_token& stop);
  Status read_norms(const Header& request, group::PairConnection& connection,
                    const std::stop_token& stop);
  Status read_status(group::PairConnection& connection, const std::stop_token& stop);
  Status initialize(const Header& request, group::PairConnection& connection,
                    const std::stop_token& stop);
  Status claim(const WorkerLife& worker, group::PairConnection& connection,
               const std::stop_token& stop);
  Status pull(const Header& request, bool with_state, group::PairConnection& connection,
              const std::stop_token& stop);
  Status push(const WorkerLife& worker, const Header& request, group::PairConnection& connection,
              const std::stop_token& stop);
  Result<PushResult> update(const WorkerLife& worker, const Header& request,
                            const at::Tensor& payload);
  Status apply(const WorkerLife& worker, uint64_t ticket, const at::Tensor& payload,
               const Sums& sums);
  Status complete_step();  // of server 0. mutex_ is locked
  void log_lost(const WorkerLife& life, const Status& lost);
  void log_dropped(const WorkerLife& worker, uint64_t ticket, bool is_stale);
  void fail(const Status& failure);

  // Constant after construction.
  const ServerOptions options_;
  const int64_t parameter_bytes_, gradient_bytes_;
  const int64_t state_bytes_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  VariableStore variables_;
  bool is_initialized_ = false;       // by the chief
  at::Tensor untrained_;              // bytes
  UpdateSchedule schedule_;           // only of server 0
  std::map<uint64_t, Sums> of_step_;  // of the micro-batches of the current step, by ticket
  Sums interval_;                     // of the steps since the last record
  uint64_t num_versions_ = 0;         // of the settings
  uint64_t max_steps_;                // of the newest one
  std::deque<std::pair<uint64_t, Sums>>
      records_;  // with their step; later than the last checkpoint
  bool has_ended_ = false;
  run::RunOutcome outcome_ = run::RunOutcome::kFinished;
  std::optional<std::chrono::steady_clock::time_point> dropped_logged_at_;
  uint64_t num_suppressed_ = 0;                                  // since then
  std::optional<std::chrono::steady_clock::time_point> end_by_;  // after request_end()
  Status failure_;
  std::stop_source stop_serving_;
};

}  // namespace stoker::parameter_server
