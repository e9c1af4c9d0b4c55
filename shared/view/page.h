// Page: one HTML document with its styles, scripts and Chart.js inside, for live runs and for
// reports. Its Content-Security-Policy permits exactly these scripts and styles and no other origin.
//
// Threads: functions of their arguments; live_page() is constant.
#pragma once

#include <string>
#include <string_view>

namespace stoker::view {

struct Page {
  std::string html;
  std::string security_policy;
};

// Reads /v1/runs, /v1/run, /v1/curves, /v1/artifacts and /v1/events of its server.
const Page& live_page();
// Contains `data`: {"runs": [{"run": RunView::overview(), "curves": RunView::curves(), "artifacts":
// {NAME: data URL or text}}, …], "created_at": "…"}.
std::string report_page(std::string_view data);

}  // namespace stoker::view
