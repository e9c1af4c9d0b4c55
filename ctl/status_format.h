// TrainerStatus as people read it.
//
// Threads: functions of their arguments.
#pragma once

#include <string>

#include "ctl/terminal.h"
#include "shared/control/trainer_status.h"

namespace stoker::ctl {

// Several lines, a topic each; ends with a newline.
std::string render_status(const control::TrainerStatus& status, const TextStyle& style);
// The most important of it on one line, without newline.
std::string render_status_line(const control::TrainerStatus& status);

}  // namespace stoker::ctl
