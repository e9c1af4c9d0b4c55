// AxisKernel: which input pixels make up each output pixel along one axis, and with what weights.
//
// The bilinear filter with antialiasing, in the arithmetic of Pillow's resize(BILINEAR) for 8-bit
// pictures: a triangle as wide as two input pixels, or two output pixels where those are larger;
// weights in fixed point with kShift bits.
//
// Threads: one object per thread. prepare() keeps its memory for the next picture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stoker::image {

class AxisKernel {
 public:
  static constexpr int kShift = 22;
  static constexpr int32_t kHalf = int32_t{1} << (kShift - 1);

  struct Window {
    uint32_t first = 0;  // input pixel
    uint32_t count = 0;  // at least 1
    size_t weights = 0;  // of weights_
    uint32_t end() const { return first + count; }
  };

  // Both at least 1. The windows' first and end never go down from one output to the next.
  void prepare(uint32_t inputs, uint32_t outputs);

  uint32_t outputs() const { return static_cast<uint32_t>(windows_.size()); }
  const Window& window(uint32_t output) const { return windows_[output]; }
  const int32_t* weights(const Window& window) const { return weights_.data() + window.weights; }
  // The most windows that one input pixel is in.
  uint32_t overlap() const;

  static uint8_t to_byte(int32_t sum) {
    return static_cast<uint8_t>(std::clamp(sum >> kShift, 0, 255));
  }

 private:
  uint32_t inputs_ = 0;
  std::vector<Window> windows_;
  std::vector<int32_t> weights_;
};

}  // namespace stoker::image
