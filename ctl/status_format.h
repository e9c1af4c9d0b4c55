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
// "async, 2 parameter servers (4.20 MB, 4.10 MB), workers: 2 training, 1 lost (worker 2 at e:2222);
// largest staleness 3"
std::string format_cluster(const control::TrainerStatus::Cluster& cluster);
// The most important fields on one line, without a newline.
std::string render_status_line(const control::TrainerStatus& status);

}  // namespace stoker::ctl
