#include "ctl/sparkline.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stoker::ctl {
namespace {

constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 9> kAscii = {" ", ".", ".", ":", "-", "=", "+", "*", "#"};

std::vector<double> equal_parts(const std::vector<HistogramPoint>& points, double min, double max,
                                size_t width) {
  std::vector<double> parts(width, 0.0);
  const double part = (max - min) / static_cast<double>(width);
  for (size_t i = 1; i < points.size(); ++i) {
    const double low = std::max(points[i - 1].limit, min), high = std::min(points[i].limit, max);
    if (points[i].count <= 0) continue;
    if (high <= low) {  // a bucket that is a point here, such as that of zero at an end
      const double at = std::clamp((low - min) / part, 0.0, static_cast<double>(width - 1));
      parts[static_cast<size_t>(at)] += points[i].count;
      continue;
    }
    for (size_t at = 0; at < width; ++at) {
      const double begin = min + static_cast<double>(at) * part;
      const double shared = std::min(high, begin + part) - std::max(low, begin);
      if (shared > 0) parts[at] += points[i].count * shared / (high - low);
    }
  }
  return parts;
}

}  // namespace

std::string sparkline(const std::vector<HistogramPoint>& points, double min, double max,
                      size_t width, bool unicode) {
  if (points.size() < 2 || width == 0 || !std::isfinite(min) || !std::isfinite(max)) return "";
  const auto& marks = unicode ? kBlocks : kAscii;
  if (max <= min) return marks.back();
  const std::vector<double> parts = equal_parts(points, min, max, width);
  const double highest = *std::max_element(parts.begin(), parts.end());
  std::string out;
  for (const double part : parts) {
    // Whatever is there is seen.
    const double height = highest > 0 ? std::ceil(part / highest * 8 - 1e-9) : 0;
    out += marks[static_cast<size_t>(std::clamp(height, 0.0, 8.0))];
  }
  return out;
}

}  // namespace stoker::ctl
