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
// "4 ranks, 1 restart; slowest: rank 2, 35.2 ms/step (median 21.0), data wait 14.1 ms; optimizer state
// 9.1 MB to 9.3 MB per rank"
std::string format_group(const control::TrainerStatus::Group& group);
// The most important fields on one line, without a newline.
std::string render_status_line(const control::TrainerStatus& status);

}  // namespace stoker::ctl
