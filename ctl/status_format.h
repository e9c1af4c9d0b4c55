// Formats TrainerStatus, and RunSummary of a run without a stokerd, for a terminal.
//
// Threads: functions of their arguments and, of ages, the clock.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctl/terminal.h"
#include "shared/control/trainer_status.h"
#include "shared/view/run_summary.h"

namespace stoker::ctl {

// Several lines, one per topic; ends with a newline. `summary`: of the run's files; add_status() is called here.
std::string render_status(const control::TrainerStatus& status, const TextStyle& style,
                          view::RunSummary summary = {});
// "4 ranks, 1 restart; slowest: rank 2, 35.2 ms/step (median 21.0), data wait 14.1 ms; optimizer state
// 9.1 MB to 9.3 MB per rank"
std::string format_group(const control::TrainerStatus::Group& group);
// "async, 2 parameter servers (4.20 MB, 4.10 MB), workers: 2 training, 1 lost (worker 2 at e:2222);
// largest staleness 3"
std::string format_cluster(const control::TrainerStatus::Cluster& cluster);
// The most important fields on one line, without a newline.
std::string render_summary_line(const view::RunSummary& summary, const TextStyle& style);

// Of a run without a stokerd. Several lines, as render_status().
std::string render_summary(const view::RunSummary& summary, const TextStyle& style);
// "step 22 000, 33 000 steps and 3 min ago"
std::string format_checkpoint(const view::RunSummary& summary);
// "1.21 cores, workers 0.52; machine 1.98"; what is not known is left out.
std::string format_cpu(const ResourceUse& use);
// "read 1.20 MB/s, workers read 35.1 MB/s; disks read 36.8 MB/s, network received 1.10 kB/s": what is more than nothing.
std::string format_transfer(const ResourceUse& use);
// "RSS 412 MB (peak 430 MB), workers 210 MB; cuda:0 allocated …"
std::string format_memory(const control::TrainerStatus& status);
// "running, 200 steps behind"
std::string format_evaluator(const view::RunSummary& summary);
// "data wait 25.0", "compute", … of a step, with their colors; `stall_ms`: of checkpoints, per step.
struct StepPhase {
  const char* name;
  double ms;
  const char* color;
};
std::vector<StepPhase> phases_of(const control::TrainerStatus& status, double stall_ms);
// Of threads, averaged over time: "1.2".
std::string format_threads(double number);
// Of a terminal: "1;32".
const char* color_code(view::Health health);
// For a line of a list: "valid/accuracy 0.9312", "-" without a value.
std::string format_best(const view::RunSummary& summary);
std::string colored_state(const view::RunSummary& summary, const TextStyle& style);
// "4 min 2 s", since an ISO 8601 time; "-": it is not one, or in the future.
std::string format_age(std::string_view time);

}  // namespace stoker::ctl
