#include "daemon/train/pause_log.h"

#include <utility>

#include "shared/base/log.h"

namespace stoker::train {

void PauseLog::pause(uint64_t step) {
  if (!std::exchange(is_paused_, true)) log_info("training paused", {{"step", step}});
}

void PauseLog::resume(uint64_t step) {
  if (std::exchange(is_paused_, false)) log_info("training resumed", {{"step", step}});
}

}  // namespace stoker::train
