#include "shared/image/axis_kernel.h"

#include <cassert>
#include <cmath>

namespace stoker::image {
namespace {

double triangle(double distance) { return std::max(0.0, 1.0 - std::fabs(distance)); }

}  // namespace

void AxisKernel::prepare(uint32_t inputs, uint32_t outputs) {
  assert(inputs >= 1 && outputs >= 1);
  if (inputs == inputs_ && outputs == windows_.size()) return;
  inputs_ = inputs;
  windows_.resize(outputs);
  weights_.clear();
  const double scale = static_cast<double>(inputs) / outputs;
  const double radius = std::max(scale, 1.0);
  std::vector<double> exact(static_cast<size_t>(std::ceil(radius)) * 2 + 1);
  for (uint32_t output = 0; output < outputs; ++output) {
    const double centre = (output + 0.5) * scale;
    const auto first = static_cast<uint32_t>(std::max(0.0, centre - radius + 0.5));
    const auto end = static_cast<uint32_t>(std::min<double>(inputs, centre + radius + 0.5));
    double total = 0;
    for (uint32_t i = first; i < end; ++i)
      total += exact[i - first] = triangle((i - centre + 0.5) * (1.0 / radius));
    windows_[output] = {.first = first, .count = end - first, .weights = weights_.size()};
    for (uint32_t i = first; i < end; ++i) {
      const double share = total != 0.0 ? exact[i - first] / total : exact[i - first];
      weights_.push_back(static_cast<int32_t>(0.5 + share * (int32_t{1} << kShift)));
    }
  }
}

uint32_t AxisKernel::overlap() const {
  // Windows begin and end in order: those that hold one pixel are neighbours.
  uint32_t most = 1;
  for (uint32_t last = 0, earliest = 0; last < outputs(); ++last) {
    while (windows_[earliest].end() <= windows_[last].first) ++earliest;
    most = std::max(most, last - earliest + 1);
  }
  return most;
}

}  // namespace stoker::image
