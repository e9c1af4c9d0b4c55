// Sparkline: a histogram on one line.
//
// Threads: function of its arguments.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stoker::ctl {

// Counts up to a limit, above the one before; the first entry is the limit below all of them.
struct HistogramPoint {
  double limit = 0;
  double count = 0;
};

// `width` characters for as many equal parts of [min, max], the higher, the more numbers; counts are
// spread evenly over their bucket. Eighths of a block with `unicode`, else one of " .:-=+*#".
// Empty where there is nothing to draw.
std::string sparkline(const std::vector<HistogramPoint>& points, double min, double max,
                      size_t width, bool unicode);

}  // namespace stoker::ctl
