// ResampleKernel: input pixels and weights of each output pixel along one axis.
//
// Bilinear and bicubic: the antialiased filters in the arithmetic of Pillow's resize(filter, box=…)
// for 8-bit images. The bilinear one is a triangle with a width of two input pixels, or of two output
// pixels if those are larger, the bicubic one has twice that width. Weights are fixed-point numbers
// with kShift bits. Pixels outside the region contribute if the filter reaches them. Nearest: the
// input pixel that the center of the output pixel is in.
//
// Threads:  one object per thread. prepare() reuses memory for the next image.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared/image/image_types.h"

namespace stoker::image {

class ResampleKernel {
 public:
  static constexpr int kShift = 22;
  static constexpr int32_t kHalf = int32_t{1} << (kShift - 1);

  struct Window {
    uint32_t first = 0;  // index of the first input pixel
    uint32_t count = 0;  // at least 1; if bilinear, the first and last weights are nonzero
    size_t weights = 0;  // offset in weights_
    uint32_t end() const { return first + count; }
  };

  // Resamples the range [from, from + length) of `inputs` pixels to `outputs` pixels. `first` and
  // `end` of the windows never decrease from one output to the next.
  void prepare(uint32_t inputs, double from, double length, uint32_t outputs,
               Interpolation interpolation = Interpolation::kBilinear);
  void prepare(uint32_t inputs, uint32_t outputs) { prepare(inputs, 0, inputs, outputs); }

  uint32_t outputs() const { return static_cast<uint32_t>(windows_.size()); }
  const Window& window(uint32_t output) const { return windows_[output]; }
  const int32_t* weights(const Window& window) const { return weights_.data() + window.weights; }
  // The input pixels used by any window: [first, end).
  uint32_t first() const { return windows_.front().first; }
  uint32_t end() const { return windows_.back().end(); }
  uint32_t max_weights() const { return max_weights_; }  // of a single window
  // True if each output pixel is one input pixel.
  bool only_picks() const { return max_weights_ == 1 && end() - first() == outputs(); }
  // Maximum number of windows that contain the same input pixel.
  uint32_t overlap() const;

  static uint8_t to_byte(int32_t sum) {
    return static_cast<uint8_t>(std::clamp(sum >> kShift, 0, 255));
  }

 private:
  void add_window(uint32_t first, uint32_t end);
  void pick_nearest(uint32_t outputs, double scale);

  uint32_t inputs_ = 0;
  double from_ = 0, length_ = 0;
  Interpolation interpolation_ = Interpolation::kBilinear;
  uint32_t max_weights_ = 0;
  std::vector<Window> windows_;
  std::vector<int32_t> weights_;
  std::vector<double> exact_;  // weights of the current window
};

// FixedPointKernel: the weights of a ResampleKernel in units of 1/65536, with the same number of
// weights for each output, for the loops of resize_kernels.h. The rounding error of a weight is
// carried over to the next one.
//
// Threads:  one object per thread. prepare() reuses memory for the next image.
class FixedPointKernel {
 public:
  // With more weights, the truncation error of the products could reach one level.
  static constexpr uint32_t kMaxTaps = 32;

  // Input indices are relative to `origin`, which must not exceed kernel.first(). At most kMaxTaps
  // weights per window.
  void prepare(const ResampleKernel& kernel, uint32_t origin);

  uint32_t outputs() const { return static_cast<uint32_t>(first_.size()); }
  uint32_t taps() const { return taps_; }
  const uint32_t* first() const { return first_.data(); }
  // taps() weights per output, zero after the end of its window.
  const uint16_t* weights() const { return weights_.data(); }
  const uint16_t* weights_of(uint32_t output) const {
    return weights_.data() + size_t{output} * taps_;
  }

 private:
  uint32_t taps_ = 0;
  std::vector<uint32_t> first_;
  std::vector<uint16_t> weights_;
};

}  // namespace stoker::image
