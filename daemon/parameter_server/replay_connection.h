// ReplayConnection: parameter servers in this process that repeat the updates of an asynchronous run in the
// order of its logs (ReplayOrder), for the chief, which is the only worker.
//
// It needs memory for the variables once more, for those of earlier steps, at most for as many as workers
// computed a gradient at a time, and for the state of the last complete step, which is what the chief
// saves at the end: behind it are gradients that some servers had applied when the run ended.
//
// Threads:   one.
// Blocking:  never.
// Ownership: shares the tensors of the parts.
// Errors:    kCorrupt: a gradient is not finite, as in the run, or the logs contradict each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/parameter_server/replay_order.h"
#include "daemon/parameter_server/server_connection.h"
#include "daemon/parameter_server/variable_store.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

class ReplayConnection final : public ServerConnection {
 public:
  // By server. `is_recorded`: whether a metrics record ends with this step.
  ReplayConnection(ReplayOrder order, std::vector<ServerPart> parts,
                   std::vector<VariableStore> stores,
                   std::function<bool(uint64_t step)> is_recorded);

  Result<Claimed> claim(const std::stop_token& stop) override;
  Status pull(uint64_t step, const std::stop_token& stop) override;
  Result<PushResult> push(uint64_t ticket, uint64_t step, const Sums& sums,
                          const std::vector<at::Tensor>& gradients,
                          const std::stop_token& stop) override;
  Status keep_alive(const std::stop_token& stop) override;
  Status initialize(uint64_t step, const Sums& sums, const std::stop_token& stop) override;
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token& stop) override;
  Status read_state(uint64_t step, const std::stop_token& stop) override;
  Status end_save(const std::stop_token& stop) override;
  Result<std::optional<Record>> take_record(uint64_t step, uint64_t saved_step,
                                            const std::stop_token& stop) override;
  Result<control::TrainerStatus::Cluster> read_status(const std::stop_token& stop) override;
  Status end_run(run::RunOutcome outcome, const std::stop_token& stop) override;
  size_t num_servers() const override { return servers_.size(); }
  bool can_save_soon() const override { return has_ended_ || can_save(); }

  bool has_ended() const { return has_ended_; }  // all updates are repeated

 private:
  struct Gradient {
    at::Tensor bytes;  // those of this server
    double norm = -1;  // of all; negative: no server needs it
    double count = -1;
  };
  struct Server {
    ServerPart part;
    VariableStore store;
    std::map<uint64_t, at::Tensor> read_later;  // parameters of earlier steps, by step
    std::map<size_t, Gradient> gradients;       // to be applied, by index
    at::Tensor last_parameters, last_state;     // of the last complete step
  };

  bool can_save() const;
  void keep_last_state();
  Status apply_next(size_t server);

  ReplayOrder order_;
  std::vector<Server> servers_;
  std::function<bool(uint64_t step)> is_recorded_;
  bool is_initialized_ = false;
  bool has_ended_ = false;
  std::optional<uint64_t> offered_step_;  // the last one at which the chief could save
  std::optional<size_t> current_;         // the gradient that the chief computes
  std::map<size_t, Sums> sums_;           // of gradients that server 0 will apply, by index
  Sums interval_;                         // of the steps since the last record
  Sums last_interval_;                    // at the last complete step
  std::deque<Record> records_;
};

}  // namespace stoker::parameter_server
