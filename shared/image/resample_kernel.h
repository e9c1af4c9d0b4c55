// ResampleKernel: which input pixels make up each output pixel along one axis, and with what weights.
//
// The bilinear filter with antialiasing, in the arithmetic of Pillow's resize(BILINEAR, box=…) for
// 8-bit pictures: a triangle as wide as two input pixels, or two output pixels where those are
// larger; weights in fixed point with kShift bits. Pixels beside the part are looked at where the
// triangle reaches them.
//
// Threads: one object per thread. prepare() keeps its memory for the next picture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stoker::image {

class ResampleKernel {
 public:
  static constexpr int kShift = 22;
  static constexpr int32_t kHalf = int32_t{1} << (kShift - 1);

  struct Window {
    uint32_t first = 0;  // input pixel
    uint32_t count = 0;  // at least 1; neither end weighs nothing
    size_t weights = 0;  // of weights_
    uint32_t end() const { return first + count; }
  };

  // The part [from, from + length) of `inputs` pixels to `outputs` pixels. The windows' first and
  // end never go down from one output to the next.
  void prepare(uint32_t inputs, double from, double length, uint32_t outputs);
  void prepare(uint32_t inputs, uint32_t outputs) { prepare(inputs, 0, inputs, outputs); }

  uint32_t outputs() const { return static_cast<uint32_t>(windows_.size()); }
  const Window& window(uint32_t output) const { return windows_[output]; }
  const int32_t* weights(const Window& window) const { return weights_.data() + window.weights; }
  // The input pixels that any window looks at: [first, end).
  uint32_t first() const { return windows_.front().first; }
  uint32_t end() const { return windows_.back().end(); }
  uint32_t max_weights() const { return max_weights_; }  // of one window
  // Whether each output pixel is one input pixel.
  bool only_picks() const { return max_weights_ == 1 && end() - first() == outputs(); }
  // The most windows that one input pixel is in.
  uint32_t overlap() const;

  static uint8_t to_byte(int32_t sum) {
    return static_cast<uint8_t>(std::clamp(sum >> kShift, 0, 255));
  }

 private:
  void add_window(uint32_t first, uint32_t end);

  uint32_t inputs_ = 0;
  double from_ = 0, length_ = 0;
  uint32_t max_weights_ = 0;
  std::vector<Window> windows_;
  std::vector<int32_t> weights_;
  std::vector<double> exact_;  // of the window in work
};

// FixedPointKernel: the weights of an ResampleKernel in 1/65536, as many for every output, for the loops of
// resize_kernels.h. What rounding takes from one weight it gives to the next.
//
// Threads: one object per thread. prepare() keeps its memory for the next picture.
class FixedPointKernel {
 public:
  // With more weights than this, what the products lose could come to a level.
  static constexpr uint32_t kMaxTaps = 32;

  // Inputs are counted from `origin`, which is not past the kernel's first. At most kMaxTaps
  // weights a window.
  void prepare(const ResampleKernel& kernel, uint32_t origin);

  uint32_t outputs() const { return static_cast<uint32_t>(first_.size()); }
  uint32_t taps() const { return taps_; }
  const uint32_t* first() const { return first_.data(); }
  // taps() of each output; those past its window are zero.
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
