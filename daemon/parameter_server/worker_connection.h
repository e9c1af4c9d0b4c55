// WorkerConnection: the connections of one start of a worker to all parameter servers.
//
// Threads:   one.
// Blocking:  each call until the servers have answered, at most for Meeting::timeout; a stop wakes it.
//            claim() returns kWait after a short time.
// Ownership: shares the tensors of the parameters.
// Errors:    kPeerLost: a server exited, hangs or cannot be reached. kCancelled.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/group/pair_connection.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/meeting.h"
#include "daemon/parameter_server/messages.h"
#include "daemon/parameter_server/update_schedule.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

// What one server has, as tensors of the worker.
struct ServerPart {
  std::vector<size_t> variables;  // indexes among all parameters
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> state;  // of the optimizer; only of the chief
};

class WorkerConnection {
 public:
  // The parts by server.
  static Result<std::unique_ptr<WorkerConnection>> open(const ClusterTask& task,
                                                        const Meeting& meeting,
                                                        std::vector<ServerPart> parts,
                                                        const std::stop_token& stop);

  struct Claimed {
    ClaimReply reply = ClaimReply::kWait;
    uint64_t ticket = 0, step = 0;
    bool is_preempted = false;  // with kEnded
  };
  // While it waits it is not lost on the other servers.
  Result<Claimed> claim(const std::stop_token& stop);
  // Overwrites the parameters by those of the servers, after at least `step` steps.
  Status pull(uint64_t step, const std::stop_token& stop);
  // Sends the gradients of a ticket: those of all parameters.
  Result<PushResult> push(uint64_t ticket, uint64_t step, const Sums& sums,
                          const std::vector<at::Tensor>& gradients, const std::stop_token& stop);

  // For a wait: tells the servers from time to time that this worker is not lost.
  Status keep_alive(const std::stop_token& stop);

  // Only for the chief. Sends parameters and optimizer state, which are those after `step` steps, and the
  // sums since the last record.
  Status initialize(uint64_t step, const Sums& sums, const std::stop_token& stop);
  // The step and the sums since the last record if the state is complete. end_save() must follow; until
  // then nullopt makes the servers wait for this, too.
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token& stop);
  Status read_state(uint64_t step, const std::stop_token& stop);
  Status end_save(const std::stop_token& stop);
  struct Record {
    uint64_t step = 0;
    Sums sums;
    double grad_norm = 0;
  };
  // The next one after `step`; nullopt: there is none. Those up to `saved_step`, of the last checkpoint
  // that is committed, are then deleted.
  Result<std::optional<Record>> take_record(uint64_t step, uint64_t saved_step,
                                            const std::stop_token& stop);
  Status end_run(bool is_preempted, const std::stop_token& stop);

 private:
  struct Server {
    std::unique_ptr<group::TcpStore> store;
    std::unique_ptr<group::PairConnection> connection;
    ServerPart part;
    at::Tensor parameter_bytes, state_bytes;
  };

  Server& first() { return servers_.front(); }
  static Result<Header> ask(Server& server, const Header& request, const std::stop_token& stop);

  std::chrono::milliseconds keep_alive_interval_{0};
  std::chrono::steady_clock::time_point kept_alive_at_ = std::chrono::steady_clock::now();
  std::vector<Server> servers_;
};

}  // namespace stoker::parameter_server
