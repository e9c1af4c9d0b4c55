// Formats TrainerStatus for a terminal.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "ctl/terminal.h"
#include "shared/control/trainer_status.h"

namespace stoker::ctl {

// Several lines, one per topic; ends with a newline.
std::string render_status(const control::TrainerStatus& status, const TextStyle& style);
// The most important fields on one line, without a newline.
std::string render_status_line(const control::TrainerStatus& status);

}  // namespace stoker::ctl
