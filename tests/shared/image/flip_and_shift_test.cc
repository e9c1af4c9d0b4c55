// Mirrored and shifted pictures, against the definition, pixel by pixel.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/horizontal_flip.h"
#include "shared/image/shift_with_fill.h"

namespace stoker::image {
namespace {

std::vector<std::byte> numbered(const ImageShape& shape) {
  std::vector<std::byte> planes(shape.bytes());
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<std::byte>(i * 31 % 251 + 1);
  return planes;
}

std::byte at(const std::vector<std::byte>& planes, const ImageShape& shape, uint32_t c, int64_t y,
             int64_t x) {
  if (y < 0 || x < 0 || y >= shape.height || x >= shape.width) return std::byte{0};
  return planes[(size_t{c} * shape.height + static_cast<size_t>(y)) * shape.width +
                static_cast<size_t>(x)];
}

TEST(HorizontalFlipTest, FlipsImageOfAnyWidth) {
  for (uint32_t width = 1; width < 140; ++width) {
    const ImageShape shape{.channels = 3, .height = 2, .width = width};
    const auto before = numbered(shape);
    auto after = before;
    horizontal_flip(shape, after);
    for (uint32_t c = 0; c < 3; ++c)
      for (uint32_t y = 0; y < 2; ++y)
        for (uint32_t x = 0; x < width; ++x)
          ASSERT_EQ(at(after, shape, c, y, x), at(before, shape, c, y, width - 1 - x)) << width;
  }
}

TEST(ShiftWithFillTest, ShiftsInAllDirectionsAndFillsWithBlack) {
  const ImageShape shape{.channels = 3, .height = 7, .width = 9};
  const auto before = numbered(shape);
  for (int32_t down = -6; down <= 6; ++down) {
    for (int32_t across = -8; across <= 8; ++across) {
      auto after = before;
      shift_with_fill(shape, down, across, after);
      for (uint32_t c = 0; c < 3; ++c)
        for (uint32_t y = 0; y < shape.height; ++y)
          for (uint32_t x = 0; x < shape.width; ++x)
            ASSERT_EQ(at(after, shape, c, y, x),
                      at(before, shape, c, int64_t{y} + down, int64_t{x} + across))
                << down << ' ' << across;
    }
  }
}

}  // namespace
}  // namespace stoker::image
