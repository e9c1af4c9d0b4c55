#include "shared/image/decoder.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/image/decoded_image.h"
#include "tests/shared/image/image_files.h"

namespace stoker::image {
namespace {

using testing::bytes_of;
using testing::decode;
using testing::DecodedImage;
using testing::encode_jpeg;
using testing::encode_png_file;
using testing::gradient;
using testing::Pixels;
using testing::plain;

// Expects every pixel to be `color` within `tolerance`.
void expect_plain(const std::string& file, uint32_t channels, const std::vector<int>& color,
                  int tolerance) {
  const DecodedImage decoded = decode(file, {.channels = channels, .height = 6, .width = 10});
  ASSERT_TRUE(decoded.status.ok()) << decoded.status.to_string();
  for (uint32_t c = 0; c < channels; ++c)
    for (uint32_t y = 0; y < 6; ++y)
      for (uint32_t x = 0; x < 10; ++x)
        ASSERT_NEAR(decoded.at(c, y, x), color[c], tolerance) << c << ' ' << y << ' ' << x;
}

TEST(ImageFormatTest, DetectsFormatByFirstBytes) {
  EXPECT_EQ(detect_format(bytes_of(encode_jpeg(plain(8, 8, {1, 2, 3})))), Format::kJpeg);
  EXPECT_EQ(detect_format(bytes_of(encode_png_file(plain(8, 8, {1, 2, 3})))), Format::kPng);
  EXPECT_EQ(detect_format(bytes_of("GIF89a..")), Format::kUnknown);
  EXPECT_EQ(detect_format(bytes_of("\xff\xd8")), Format::kUnknown);
  EXPECT_EQ(detect_format({}), Format::kUnknown);
}

TEST(DecodeJpegTest, ConvertsEveryColorSpaceToRequestedChannels) {
  expect_plain(encode_jpeg(plain(16, 16, {200, 100, 50})), 3, {200, 100, 50}, 3);
  expect_plain(encode_jpeg(plain(16, 16, {200, 100, 50})), 1, {124}, 3);
  expect_plain(encode_jpeg(plain(16, 16, {77})), 3, {77, 77, 77}, 1);
  expect_plain(encode_jpeg(plain(16, 16, {77})), 1, {77}, 1);
}

TEST(DecodeJpegTest, ReadsCmykByAdobeConvention) {
  // 255 is no ink: red = cyan * black / 255.
  const std::string file = encode_jpeg(plain(16, 16, {200, 100, 50, 255}));
  expect_plain(file, 3, {200, 100, 50}, 3);
  expect_plain(file, 1, {124}, 3);
  expect_plain(encode_jpeg(plain(16, 16, {200, 100, 50, 128})), 3, {100, 50, 25}, 3);
}

TEST(DecodeJpegTest, DecodesProgressiveLikeBaseline) {
  const Pixels pixels = gradient(60, 80, 3);
  const DecodedImage baseline =
      decode(encode_jpeg(pixels), {.channels = 3, .height = 60, .width = 80});
  const DecodedImage progressive = decode(encode_jpeg(pixels, {.progressive = true}),
                                          {.channels = 3, .height = 60, .width = 80});
  ASSERT_TRUE(progressive.status.ok()) << progressive.status.to_string();
  EXPECT_EQ(progressive.planes, baseline.planes);
}

TEST(DecodeJpegTest, PreservesRowsAndColumns) {
  const Pixels pixels = gradient(48, 64, 3);
  const DecodedImage decoded =
      decode(encode_jpeg(pixels), {.channels = 3, .height = 48, .width = 64});
  ASSERT_TRUE(decoded.status.ok());
  for (uint32_t c = 0; c < 3; ++c)
    for (uint32_t y = 0; y < 48; ++y)
      for (uint32_t x = 0; x < 64; ++x) ASSERT_NEAR(decoded.at(c, y, x), pixels.at(y, x, c), 6);
}

TEST(DecodeJpegTest, MatchesFullDecodeWithScaledDecode) {
  // 8 times as large as the shape, so it is decoded at 1/8.
  const Pixels large = gradient(8 * 30, 8 * 40, 3);
  const Pixels small = gradient(30, 40, 3);
  const DecodedImage decoded =
      decode(encode_jpeg(large), {.channels = 3, .height = 30, .width = 40});
  ASSERT_TRUE(decoded.status.ok());
  for (uint32_t c = 0; c < 3; ++c)
    for (uint32_t y = 0; y < 30; ++y)
      for (uint32_t x = 0; x < 40; ++x) ASSERT_NEAR(decoded.at(c, y, x), small.at(y, x, c), 6);
}

TEST(DecodeJpegTest, DecodesOddSizesAndEnlarges) {
  for (const auto& [height, width] : {std::pair{1u, 1u}, {17u, 3u}, {3u, 1000u}, {1001u, 7u}}) {
    const DecodedImage decoded = decode(encode_jpeg(plain(height, width, {90, 90, 90})),
                                        {.channels = 3, .height = 20, .width = 33});
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.to_string();
    for (const std::byte value : decoded.planes) ASSERT_NEAR(std::to_integer<int>(value), 90, 2);
  }
}

TEST(DecodePngTest, ConvertsEveryColorTypeToRequestedChannels) {
  expect_plain(encode_png_file(plain(5, 7, {200, 100, 50})), 3, {200, 100, 50}, 0);
  expect_plain(encode_png_file(plain(5, 7, {200, 100, 50})), 1, {124}, 0);
  expect_plain(encode_png_file(plain(5, 7, {77}), {.color_type = 0}), 3, {77, 77, 77}, 0);
  expect_plain(encode_png_file(plain(5, 7, {77}), {.color_type = 0}), 1, {77}, 0);
  expect_plain(encode_png_file(plain(5, 7, {1}), {.color_type = 0, .bit_depth = 1}), 3,
               {255, 255, 255}, 0);
  expect_plain(encode_png_file(plain(5, 7, {5}), {.color_type = 0, .bit_depth = 4}), 1, {85}, 0);
  expect_plain(encode_png_file(plain(5, 7, {77}), {.color_type = 0, .bit_depth = 16}), 3,
               {77, 77, 77}, 0);
  expect_plain(encode_png_file(plain(5, 7, {9, 8, 7}), {.color_type = 2, .bit_depth = 16}), 3,
               {9, 8, 7}, 0);
}

TEST(DecodePngTest, ReadsPalettes) {
  const std::vector<uint8_t> palette{0, 0, 0, 10, 20, 30, 200, 100, 50};
  expect_plain(encode_png_file(plain(5, 7, {2}), {.color_type = 3, .palette = palette}), 3,
               {200, 100, 50}, 0);
  expect_plain(
      encode_png_file(plain(5, 7, {1}), {.color_type = 3, .bit_depth = 2, .palette = palette}), 3,
      {10, 20, 30}, 0);
  expect_plain(encode_png_file(plain(5, 7, {2}), {.color_type = 3, .palette = palette}), 1, {124},
               0);
}

TEST(DecodePngTest, DropsAlphaWithoutBlending) {
  expect_plain(encode_png_file(plain(5, 7, {200, 100, 50, 0}), {.color_type = 6}), 3,
               {200, 100, 50}, 0);
  expect_plain(encode_png_file(plain(5, 7, {77, 10}), {.color_type = 4}), 3, {77, 77, 77}, 0);
  expect_plain(encode_png_file(plain(5, 7, {77, 10}), {.color_type = 4}), 1, {77}, 0);
}

TEST(DecodePngTest, DecodesInterlacedLikeNoninterlaced) {
  const Pixels pixels = testing::pattern(23, 37);
  const ImageShape shape{.channels = 3, .height = 23, .width = 37};
  const DecodedImage rows = decode(encode_png_file(pixels), shape);
  const DecodedImage interlaced = decode(encode_png_file(pixels, {.interlaced = true}), shape);
  ASSERT_TRUE(interlaced.status.ok()) << interlaced.status.to_string();
  EXPECT_EQ(interlaced.planes, rows.planes);
}

TEST(DecoderTest, DecodesIndependentlyOfPreviousImage) {
  const std::string large = encode_jpeg(gradient(200, 300, 3)),
                    small = encode_png_file(testing::pattern(9, 11));
  const ImageShape shape{.channels = 3, .height = 16, .width = 16};
  Decoder reused;
  std::vector<std::byte> planes(shape.bytes());
  ASSERT_TRUE(reused.decode(bytes_of(large), shape, planes).ok());
  ASSERT_FALSE(reused.decode(bytes_of(large.substr(0, large.size() / 2)), shape, planes).ok());
  ASSERT_TRUE(reused.decode(bytes_of(small), shape, planes).ok());
  EXPECT_EQ(planes, decode(small, shape).planes);
}

}  // namespace
}  // namespace stoker::image
