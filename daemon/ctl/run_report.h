// The report of a run for people: a table, a few lines of sums, and a plot of the losses. From its
// directory alone.
//
// Threads: functions of their arguments.
// Errors:  kNotFound: no step was reported yet. kCorrupt: names file and line; or no loss is a
//          number, so that there is nothing to plot. kIoError, kPermission.
#pragma once

#include <string>

#include "daemon/ctl/run_history.h"
#include "daemon/ctl/terminal.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// About ten reported steps, evenly chosen, and the last; then the best validation, samples and
// time, and a small plot. Speeds and waits are over all steps since the row above, and so is the
// validation: the newest of them.
Result<std::string> render_report(const RunHistory& history, const TextStyle& style);

// Training and validation loss over the steps.
Result<std::string> render_loss_plot(const RunHistory& history, int rows, const TextStyle& style);

}  // namespace stoker::ctl
