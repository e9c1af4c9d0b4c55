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
#include "shared/control/trainer_status.h"
#include "shared/run/run_state.h"

namespace stoker::parameter_server {

// What one server has, as tensors of the worker.
struct ServerPart {
  std::vector<size_t> variables;  // indexes among all parameters
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> state;  // of the optimizer; only of the chief
  std::vector<at::Tensor>
      untrained;  // parameters and buffers; only of server 0, of several workers
};

class WorkerConnection {
 public:
  // The parts by server. `sums_norms`: the servers of a sync run need the norm of all gradients.
  static Result<std::unique_ptr<WorkerConnection>> open(const ClusterTask& task,
                                                        const Meeting& meeting,
                                                        std::vector<ServerPart> parts,
                                                        const std::stop_token& stop,
                                                        bool sums_norms = false);

  struct Claimed {
    ClaimReply reply = ClaimReply::kWait;
    uint64_t ticket = 0, step = 0;
    bool is_preempted = false;  // with kEnded
  };
  // While it waits it is not lost on the other servers.
  Result<Claimed> claim(const std::stop_token& stop);
  // Overwrites the parameters by those of the servers, after at least `step` steps. The first call also
  // those that are not trained.
  Status pull(uint64_t step, const std::stop_token& stop);
  // Sends the gradients of a ticket: those of all parameters.
  Result<PushResult> push(uint64_t ticket, uint64_t step, const Sums& sums,
                          const std::vector<at::Tensor>& gradients, const std::stop_token& stop);

  size_t num_servers() const { return servers_.size(); }
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
  // Tasks, and what server 0 counts.
  Result<control::TrainerStatus::Cluster> read_status(const std::stop_token& stop);
  Status end_run(run::RunOutcome outcome, const std::stop_token& stop);

 private:
  struct Server {
    std::unique_ptr<group::TcpStore> store;
    std::unique_ptr<group::PairConnection> connection;
    ServerPart part;
    at::Tensor parameter_bytes, state_bytes;
    bool has_untrained = false;  // read
  };

  Server& first() { return servers_.front(); }
  static Result<Header> ask(Server& server, const Header& request, const std::stop_token& stop);
  Status read_untrained(const std::stop_token& stop);
  Result<double> norm_of_step(uint64_t step, const std::stop_token& stop);

  ClusterTask task_;
  bool sums_norms_ = false;
  std::chrono::milliseconds keep_alive_interval_{0};
  std::chrono::steady_clock::time_point kept_alive_at_ = std::chrono::steady_clock::now();
  std::vector<Server> servers_;
};

}  // namespace stoker::parameter_server
