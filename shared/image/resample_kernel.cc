#include "shared/image/resample_kernel.h"

#include <cassert>
#include <cmath>

namespace stoker::image {
namespace {

double triangle(double distance) { return std::max(0.0, 1.0 - std::fabs(distance)); }

// The cubic convolution of Keys with a = -0.5.
double cubic(double distance) {
  constexpr double kA = -0.5;
  const double x = std::fabs(distance);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0.0;
}

}  // namespace

void ResampleKernel::prepare(uint32_t inputs, double from, double length, uint32_t outputs,
                             Interpolation interpolation) {
  assert(inputs >= 1 && outputs >= 1 && length > 0 && from >= 0 && from + length <= inputs + 1e-6);
  if (inputs == inputs_ && from == from_ && length == length_ && outputs == windows_.size() &&
      interpolation == interpolation_)
    return;
  inputs_ = inputs;
  from_ = from;
  length_ = length;
  interpolation_ = interpolation;
  max_weights_ = 0;
  windows_.clear();
  weights_.clear();
  const double scale = length / outputs;
  if (interpolation == Interpolation::kNearest) return pick_nearest(outputs, scale);
  const bool is_cubic = interpolation == Interpolation::kBicubic;
  const double radius = std::max(scale, 1.0) * (is_cubic ? 2 : 1);
  const double steepness = 1.0 / std::max(scale, 1.0);
  exact_.resize(static_cast<size_t>(std::ceil(radius)) * 2 + 1);
  for (uint32_t output = 0; output < outputs; ++output) {
    const double center = from + (output + 0.5) * scale;
    const auto first = static_cast<uint32_t>(std::max(0.0, center - radius + 0.5));
    const auto end = static_cast<uint32_t>(std::min<double>(inputs, center + radius + 0.5));
    for (uint32_t i = first; i < end; ++i) {
      const double distance = (i - center + 0.5) * steepness;
      exact_[i - first] = is_cubic ? cubic(distance) : triangle(distance);
    }
    add_window(first, end);
  }
}

void ResampleKernel::pick_nearest(uint32_t outputs, double scale) {
  weights_.assign(1, int32_t{1} << kShift);
  max_weights_ = 1;
  double position = from_ + scale * 0.5;  // added up as in Pillow, which matters between two pixels
  for (uint32_t output = 0; output < outputs; ++output, position += scale) {
    const auto pixel = static_cast<uint32_t>(position);
    windows_.push_back({.first = std::min(pixel, inputs_ - 1), .count = 1, .weights = 0});
  }
}

// Converts the weights in exact_. Bilinear: without zero weights at either end. A bicubic window has
// zeros where a pixel is a whole distance away; without them, windows would not move in order.
void ResampleKernel::add_window(uint32_t first, uint32_t end) {
  double total = 0;
  for (uint32_t i = 0; i < end - first; ++i) total += exact_[i];
  const double unit = (int32_t{1} << kShift) / total;
  const bool trims = interpolation_ == Interpolation::kBilinear;
  Window window{.first = first, .count = 0, .weights = weights_.size()};
  for (uint32_t i = 0; i < end - first; ++i) {
    const double exact = exact_[i] * unit;
    const auto weight = static_cast<int32_t>(exact < 0 ? exact - 0.5 : exact + 0.5);
    if (weight == 0 && trims && weights_.size() == window.weights) {
      ++window.first;
    } else {
      weights_.push_back(weight);
    }
  }
  while (trims && weights_.back() == 0) weights_.pop_back();
  window.count = static_cast<uint32_t>(weights_.size() - window.weights);
  max_weights_ = std::max(max_weights_, window.count);
  windows_.push_back(window);
}

uint32_t ResampleKernel::overlap() const {
  // Windows start and end in increasing order, so the windows that contain a pixel are consecutive.
  uint32_t max_count = 1;
  for (uint32_t last = 0, earliest = 0; last < outputs(); ++last) {
    while (windows_[earliest].end() <= windows_[last].first) ++earliest;
    max_count = std::max(max_count, last - earliest + 1);
  }
  return max_count;
}

namespace {

constexpr int kDroppedBits = ResampleKernel::kShift - 16;
constexpr int32_t kMaxWeight = 65535;  // just below 1.0

}  // namespace

void FixedPointKernel::prepare(const ResampleKernel& kernel, uint32_t origin) {
  assert(kernel.max_weights() <= kMaxTaps && origin <= kernel.first());
  taps_ = kernel.max_weights();
  first_.resize(kernel.outputs());
  weights_.assign(size_t{kernel.outputs()} * taps_, 0);
  for (uint32_t output = 0; output < kernel.outputs(); ++output) {
    const ResampleKernel::Window& window = kernel.window(output);
    const int32_t* exact = kernel.weights(window);
    uint16_t* weights = weights_.data() + size_t{output} * taps_;
    first_[output] = window.first - origin;
    int32_t error = 0;
    for (uint32_t i = 0; i < window.count; ++i) {
      const int32_t target_weight = exact[i] + error;
      const int32_t weight =
          std::clamp((target_weight + (1 << (kDroppedBits - 1))) >> kDroppedBits, 0, kMaxWeight);
      error = target_weight - (weight << kDroppedBits);
      weights[i] = static_cast<uint16_t>(weight);
    }
  }
}

}  // namespace stoker::image
