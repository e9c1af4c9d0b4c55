#include "shared/image/fixed_point_kernel.h"

#include <algorithm>
#include <cassert>

namespace stoker::image {
namespace {

constexpr int kFewerBits = ResampleKernel::kShift - 16;
constexpr int32_t kMaxWeight = 65535;  // nearly 1

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
    int32_t carried = 0;
    for (uint32_t i = 0; i < window.count; ++i) {
      const int32_t wanted = exact[i] + carried;
      const int32_t weight =
          std::clamp((wanted + (1 << (kFewerBits - 1))) >> kFewerBits, 0, kMaxWeight);
      carried = wanted - (weight << kFewerBits);
      weights[i] = static_cast<uint16_t>(weight);
    }
  }
}

}  // namespace stoker::image
