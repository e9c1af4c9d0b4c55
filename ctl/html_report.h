// render_html_report: one or several runs as a page that needs no other file (shared/view/page.h).
//
// Threads:  pure functions of the file system.
// Errors:   kInvalidArgument: the runs do not fit in kMaxReportBytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

inline constexpr size_t kMaxReportBytes = 5 << 20;

// The curves have fewer points with more runs; of the images, those that fit, the newest first.
Result<std::string> render_html_report(const std::vector<run::RunLayout>& runs);

}  // namespace stoker::ctl
