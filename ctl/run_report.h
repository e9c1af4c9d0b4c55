// The report of a run for people: a table, a few lines of sums, and a plot of the losses. From its
// directory alone.
//
// Threads: functions of their arguments.
// Errors:  kNotFound: no step was reported yet. kCorrupt: names file and line; or no loss is a
//          number, so that there is nothing to plot. kIoError, kPermission.
#pragma once

#include <string>
#include <vector>

#include "ctl/plot_axis.h"
#include "ctl/run_history.h"
#include "ctl/terminal.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// About ten reported steps, evenly chosen, and the last; then the best validation, samples and
// time, and a small plot. Speeds and waits are over all steps since the row above, and so is the
// validation: the newest of them.
Result<std::string> render_report(const RunHistory& history, const TextStyle& style);

// Training loss, and the validation metric that "best" goes by, over the steps. At least one point is
// finite.
Result<std::vector<Curve>> loss_curves(const RunHistory& history);
// One metric of every set that has it. kNotFound: none has; names those that there are.
Result<std::vector<Curve>> metric_curves(const RunHistory& history, const std::string& metric);

// loss_curves() on the terminal.
Result<std::string> render_loss_plot(const RunHistory& history, int rows, const TextStyle& style);

}  // namespace stoker::ctl
