#include "shared/image/shift_with_fill.h"

#include <cassert>
#include <cstdlib>
#include <cstring>

namespace stoker::image {
namespace {

// One row from another of the same plane, or from outside where `from` is null.
void shift_row(std::byte* to, const std::byte* from, uint32_t width, int32_t across) {
  if (!from) {
    std::memset(to, 0, width);
    return;
  }
  const auto gap = static_cast<size_t>(std::abs(across));
  if (across >= 0) {
    std::memmove(to, from + gap, width - gap);
    std::memset(to + width - gap, 0, gap);
  } else {
    std::memmove(to + gap, from, width - gap);
    std::memset(to, 0, gap);
  }
}

}  // namespace

void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes) {
  const auto height = static_cast<int32_t>(shape.height);
  assert(planes.size() == shape.bytes() && std::abs(down) < height);
  assert(std::abs(across) < static_cast<int32_t>(shape.width));
  if (down == 0 && across == 0) return;
  const size_t plane_bytes = size_t{shape.height} * shape.width;
  for (uint32_t c = 0; c < shape.channels; ++c) {
    std::byte* plane = planes.data() + c * plane_bytes;
    const auto row = [&](int32_t y) { return plane + size_t(y) * shape.width; };
    // In the order in which no row is overwritten before it is moved.
    for (int32_t i = 0; i < height; ++i) {
      const int32_t y = down >= 0 ? i : height - 1 - i;
      const int32_t from = y + down;
      shift_row(row(y), from >= 0 && from < height ? row(from) : nullptr, shape.width, across);
    }
  }
}

}  // namespace stoker::image
