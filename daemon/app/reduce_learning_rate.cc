#include "daemon/app/reduce_learning_rate.h"

#include "shared/base/log.h"

namespace stoker::app {

void reduce_learning_rate(const std::optional<Rollback>& rollback,
                          const config::TrainConfig& config, uint64_t step,
                          train::LiveState& state) {
  if (!rollback || rollback->to_step != step) return;
  for (; state.rollbacks < rollback->times; ++state.rollbacks)
    state.lr_scale *= config.rollback_lr_factor;
  log_warn("run rolled back", {{"step", step},
                               {"attempt", rollback->times},
                               {"max_attempts", config.max_nonfinite},
                               {"lr_scale", state.lr_scale},
                               {"reason", "loss, gradient or state not finite"}});
}

}  // namespace stoker::app
