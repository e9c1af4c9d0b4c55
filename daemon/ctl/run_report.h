// The report of a run for people: a table, a line of sums, and a plot of the losses. From its
// directory alone.
//
// Threads: functions of their arguments.
// Errors:  kNotFound: no such run, or no step was reported yet. kCorrupt: names file and line.
//          kIoError, kPermission.
#pragma once

#include <string>

#include "daemon/ctl/plot.h"
#include "shared/base/status.h"

namespace stoker::ctl {

// About ten reported steps, evenly chosen, and the last; then the best validation, samples and
// time. Speeds and waits are over all steps since the row above.
Result<std::string> render_report(const std::string& run_dir, const ReportStyle& style);

// Training and validation loss over the steps.
Result<std::string> render_loss_plot(const std::string& run_dir, const ReportStyle& style);

}  // namespace stoker::ctl
