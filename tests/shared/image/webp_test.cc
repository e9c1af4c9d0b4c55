#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/image/decoded_image.h"
#include "tests/shared/image/image_files.h"

namespace stoker::image {
namespace {

using testing::bytes_of;
using testing::decode;
using testing::DecodedImage;
using testing::encode_webp;
using ::testing::HasSubstr;
using testing::pattern;
using testing::Pixels;
using testing::plain;

constexpr ImageShape kSmall{.channels = 3, .height = 24, .width = 24};

void expect_corrupt(const std::string& file, const std::string& reason,
                    const DecodeLimits& limits = {}) {
  const Status status = decode(file, kSmall, {}, limits).status;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(reason));
}

TEST(WebpTest, DetectsFormatByFirstBytes) {
  EXPECT_EQ(detect_format(bytes_of(encode_webp(plain(8, 8, {1, 2, 3})))), Format::kWebp);
  EXPECT_EQ(detect_format(bytes_of("RIFF....WEBP")), Format::kWebp);
  EXPECT_EQ(detect_format(bytes_of("RIFF....WAVE")), Format::kUnknown);
  EXPECT_EQ(detect_format(bytes_of("RIFF....WEB")), Format::kUnknown);
}

TEST(WebpTest, RoundTripsLosslessImage) {
  const Pixels pixels = pattern(37, 51);
  const DecodedImage decoded =
      decode(encode_webp(pixels, {.lossless = true}), {.channels = 3, .height = 37, .width = 51});
  ASSERT_TRUE(decoded.status.ok()) << decoded.status.to_string();
  for (uint32_t c = 0; c < 3; ++c)
    for (uint32_t y = 0; y < 37; ++y)
      for (uint32_t x = 0; x < 51; ++x) ASSERT_EQ(decoded.at(c, y, x), pixels.at(y, x, c));
}

TEST(WebpTest, ApproximatesImageWithLossyCompression) {
  const Pixels pixels = testing::gradient(48, 64, 3);
  const DecodedImage decoded =
      decode(encode_webp(pixels), {.channels = 3, .height = 48, .width = 64});
  ASSERT_TRUE(decoded.status.ok());
  for (uint32_t c = 0; c < 3; ++c)
    for (uint32_t y = 0; y < 48; ++y)
      for (uint32_t x = 0; x < 64; ++x) ASSERT_NEAR(decoded.at(c, y, x), pixels.at(y, x, c), 12);
}

TEST(WebpTest, ConvertsToGrayAndDropsAlpha) {
  const ImageShape gray{.channels = 1, .height = 5, .width = 7};
  const ImageShape color{.channels = 3, .height = 5, .width = 7};
  for (const bool lossless : {false, true}) {
    const std::string opaque = encode_webp(plain(16, 16, {200, 100, 50}), {.lossless = lossless});
    EXPECT_NEAR(decode(opaque, gray).at(0, 2, 3), 124, 3);
    const std::string clear =
        encode_webp(plain(16, 16, {200, 100, 50, 30}), {.lossless = lossless});
    const DecodedImage decoded = decode(clear, color);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.to_string();
    EXPECT_NEAR(decoded.at(0, 2, 3), 200, 4);
    EXPECT_NEAR(decoded.at(1, 2, 3), 100, 4);
    EXPECT_NEAR(decoded.at(2, 2, 3), 50, 4);
  }
}

TEST(WebpTest, MatchesCropOfFullImage) {
  constexpr uint32_t kHeight = 83, kWidth = 101;
  const testing::WebpOptions coarse{.quality = 40}, fine{.quality = 95}, lossless{.lossless = true};
  for (const testing::WebpOptions& options : {coarse, fine, lossless}) {
    const std::string file = encode_webp(pattern(kHeight, kWidth), options);
    const DecodedImage all = decode(file, {.channels = 3, .height = kHeight, .width = kWidth});
    ASSERT_TRUE(all.status.ok());
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
      ImageShape shape{.channels = 3};
      shape.height = 1 + static_cast<uint32_t>(random()) % kHeight;
      shape.width = 1 + static_cast<uint32_t>(random()) % kWidth;
      const uint32_t top = static_cast<uint32_t>(random()) % (kHeight - shape.height + 1);
      const uint32_t left = static_cast<uint32_t>(random()) % (kWidth - shape.width + 1);
      const DecodedImage part = decode(file, shape, [&](uint32_t, uint32_t) {
        return CropBox{.left = double(left),
                       .top = double(top),
                       .width = double(shape.width),
                       .height = double(shape.height)};
      });
      ASSERT_TRUE(part.status.ok());
      for (uint32_t c = 0; c < 3; ++c)
        for (uint32_t y = 0; y < shape.height; ++y)
          for (uint32_t x = 0; x < shape.width; ++x)
            ASSERT_EQ(part.at(c, y, x), all.at(c, top + y, left + x))
                << left << ' ' << top << ' ' << shape.width << 'x' << shape.height;
    }
  }
}

TEST(CorruptWebpTest, RejectsTruncationAtAnyByte) {
  for (const bool lossless : {false, true}) {
    const std::string file = encode_webp(pattern(40, 40), {.lossless = lossless});
    for (size_t length = 0; length + 2 < file.size(); ++length)
      ASSERT_EQ(decode(file.substr(0, length), kSmall).status.code(), StatusCode::kCorrupt)
          << length;
  }
}

TEST(CorruptWebpTest, RejectsGarbageAfterMagicBytes) {
  expect_corrupt(std::string("RIFF\x64\x01\x00\x00WEBP", 12) + std::string(400, 'x'), "WebP: ");
}

TEST(CorruptWebpTest, RejectsImageBeyondLimits) {
  const std::string file = encode_webp(pattern(100, 90));
  expect_corrupt(file, "90x100 pixels: more than the limit", {.pixels = 8999});
  expect_corrupt(file, "90x100 pixels: more than the limit", {.side = 99});
  expect_corrupt(file, "bytes of memory", {.memory_bytes = 10'000});
}

// A lossless header is one byte, then 14 bits each for width - 1 and height - 1.
TEST(CorruptWebpTest, RejectsHugeHeaderSizeBeforeAllocation) {
  const std::string chunk{"\x2f\xff\xff\xff\x0f\x00\x00\x00\x00\x00", 10};
  std::string file("RIFF\x16\x00\x00\x00WEBPVP8L\x0a\x00\x00\x00", 20);
  expect_corrupt(file + chunk, "16384x16384 pixels: more than the limit");
}

TEST(CorruptWebpTest, RejectsAnimations) {
  std::string file(
      "RIFF\x30\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x09\x00\x00\x09\x00\x00", 30);
  file += std::string("ANIM\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00", 14);
  expect_corrupt(file + std::string(40, '\0'), "animation");
}

}  // namespace
}  // namespace stoker::image
