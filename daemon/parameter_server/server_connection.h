// ServerConnection: what a worker asks of all parameter servers.
//
// Threads:   one.
// Blocking:  each call until the servers have answered; a stop wakes it. claim() returns kWait after a short
//            time.
// Ownership: shares the tensors of the parameters.
// Errors:    those of the implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/parameter_server/messages.h"
#include "daemon/parameter_server/setting_history.h"
#include "daemon/parameter_server/update_schedule.h"
#include "daemon/train/optimizer.h"
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

  // Of what all parameters have.
  template <typename Each>
  std::vector<Each> own_of(const std::vector<Each>& all) const {
    std::vector<Each> own;
    for (const size_t variable : variables) own.push_back(all[variable]);
    return own;
  }
};

class ServerConnection {
 public:
  virtual ~ServerConnection() = default;

  struct Claimed {
    ClaimReply reply = ClaimReply::kWait;
    uint64_t ticket = 0, step = 0;
    std::optional<uint64_t> prefetch = {};  // with kGranted: the ticket that probably follows
    bool is_preempted = false;              // with kEnded
  };
  // While it waits it is not lost on the other servers.
  virtual Result<Claimed> claim(const std::stop_token& stop) = 0;
  // For a worker that is stopped: a last ticket, below others that are applied, so that the chief can save
  // soon. kWait: there is none. Does not wait.
  virtual Result<Claimed> claim_gap(const std::stop_token&) { return Claimed{}; }
  // Overwrites the parameters by those of the servers, after at least `step` steps. The first call also
  // those that are not trained.
  virtual Status pull(uint64_t step, const std::stop_token& stop) = 0;
  // Sends the gradients of a ticket, those of all parameters, and which of these it has reached.
  virtual Result<PushResult> push(uint64_t ticket, uint64_t step, const Sums& sums,
                                  const std::vector<at::Tensor>& gradients,
                                  const train::Optimizer::Reached& reached,
                                  const std::stop_token& stop) = 0;

  // For a wait: tells the servers from time to time that this worker is not lost.
  virtual Status keep_alive(const std::stop_token& stop) = 0;

  // The settings that others have changed since the last call, in order. Learned with the replies of server 0.
  virtual std::vector<SettingsVersion> take_settings() = 0;
  // Only for the chief, after begin_save() or before initialize(): for the updates from this step on.
  virtual Status change_settings(const SettingsVersion& settings, const std::stop_token& stop) = 0;

  // Only for the chief. Sends parameters and optimizer state, which are those after `step` steps, and the
  // sums since the last record.
  virtual Status initialize(uint64_t step, const Sums& sums, const std::stop_token& stop) = 0;
  // The step and the sums since the last record if the state is complete. end_save() must follow; until
  // then nullopt makes the servers wait for this, too.
  virtual Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(
      const std::stop_token& stop) = 0;
  virtual Status read_state(uint64_t step, const std::stop_token& stop) = 0;
  virtual Status end_save(const std::stop_token& stop) = 0;
  struct Record {
    uint64_t step = 0;
    Sums sums;
    double grad_norm = 0;
  };
  // The next one after `step`; nullopt: there is none. Those up to `saved_step`, of the last checkpoint
  // that is committed, are then deleted.
  virtual Result<std::optional<Record>> take_record(uint64_t step, uint64_t saved_step,
                                                    const std::stop_token& stop) = 0;
  // Tasks, and what server 0 counts.
  virtual Result<control::TrainerStatus::Cluster> read_status(const std::stop_token& stop) = 0;
  virtual Status end_run(run::RunOutcome outcome, const std::stop_token& stop) = 0;

  virtual size_t num_servers() const = 0;
};

}  // namespace stoker::parameter_server
