#include "shared/image/resizer.h"

#include <algorithm>

namespace stoker::image {

void Resizer::begin(uint32_t height, uint32_t width, const CropBox& box, const ImageShape& shape,
                    std::span<std::byte> planes) {
  shape_ = shape;
  planes_ = planes;
  across_.prepare(width, box.left, box.width, shape.width);
  down_.prepare(height, box.top, box.height, shape.height);
}

void Resizer::expect_rows(size_t row_bytes, uint32_t left) {
  in_blocks_ = std::max(across_.max_weights(), down_.max_weights()) <= FixedPointKernel::kMaxTaps;
  if (in_blocks_) {
    blocks_.begin(across_, down_, shape_, planes_, row_bytes, left);
  } else {
    exact_.begin(across_, down_, shape_, planes_, row_bytes, left);
  }
}

}  // namespace stoker::image
