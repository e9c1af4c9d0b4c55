#include "shared/image/png.h"

#include <vector>

#include <gtest/gtest.h>

#include "shared/image/decoder.h"

namespace stoker::image {
namespace {

TEST(PngWriterTest, RoundTripsPixels) {
  constexpr uint32_t kWidth = 7, kHeight = 5;
  std::vector<uint8_t> rgb;
  for (uint32_t i = 0; i < kWidth * kHeight * 3; ++i) rgb.push_back(static_cast<uint8_t>(i * 37));
  const auto file = encode_png(rgb, kWidth, kHeight);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  std::vector<std::byte> planes(rgb.size());
  ASSERT_TRUE(Decoder().decode(std::as_bytes(std::span(*file)), {3, kHeight, kWidth}, planes).ok());
  for (size_t channel = 0; channel < 3; ++channel)
    for (size_t i = 0; i < kWidth * kHeight; ++i)
      ASSERT_EQ(static_cast<uint8_t>(planes[channel * kWidth * kHeight + i]), rgb[i * 3 + channel]);
}

TEST(PngWriterTest, RejectsMismatchedSize) {
  EXPECT_EQ(encode_png(std::vector<uint8_t>(12), 2, 3).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(encode_png({}, 0, 0).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stoker::image
