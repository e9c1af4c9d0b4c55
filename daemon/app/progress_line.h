// The progress line that is updated on a terminal.
#pragma once

#include <string>

#include "shared/control/trainer_status.h"

namespace stoker::app {

// "step 1200/2000 60 %  loss 1.4032  lr 0.0003  812 samples/s  wait 0.1 ms  ETA 1:07".
// Truncated to `columns`.
std::string progress_line(const control::TrainerStatus& status, size_t columns);

std::string format_duration(double seconds);  // "0:07", "12:34", "3:02:01", "2 d 3 h"

}  // namespace stoker::app
