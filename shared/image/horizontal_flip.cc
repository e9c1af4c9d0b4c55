#include "shared/image/horizontal_flip.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "shared/base/target_clones.h"

namespace stoker::image {
namespace {

using Bytes16 = uint8_t __attribute__((vector_size(16)));

[[gnu::always_inline]] inline Bytes16 reversed(const uint8_t* from) {
  Bytes16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_shufflevector(bytes, bytes, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1,
                                 0);
}

STOKER_TARGET_CLONES
void flip_rows(uint8_t* row, size_t rows, size_t width) {
  for (; rows > 0; --rows, row += width) {
    uint8_t* left = row;
    uint8_t* right = row + width;
    while (right - left >= 32) {
      const Bytes16 from_left = reversed(left);
      const Bytes16 from_right = reversed(right - 16);
      std::memcpy(left, &from_right, 16);
      std::memcpy(right - 16, &from_left, 16);
      left += 16;
      right -= 16;
    }
    while (left < right) std::swap(*left++, *--right);
  }
}

}  // namespace

void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes) {
  assert(planes.size() == shape.bytes());
  flip_rows(reinterpret_cast<uint8_t*>(planes.data()), size_t{shape.channels} * shape.height,
            shape.width);
}

}  // namespace stoker::image
