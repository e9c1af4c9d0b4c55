// FixedPointKernel: the weights of an ResampleKernel in 1/65536, as many for every output, for the loops of
// resize_kernels.h. What rounding takes from one weight it gives to the next.
//
// Threads: one object per thread. prepare() keeps its memory for the next picture.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/image/resample_kernel.h"

namespace stoker::image {

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
