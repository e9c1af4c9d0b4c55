#include "shared/image/exif_orientation.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/image/image_files.h"

namespace stoker::image {
namespace {

using testing::bytes_of;

constexpr Orientation kRotated{.transposes = true, .flips_across = true, .flips_down = false};
constexpr size_t kAfterPngHeader = 33;

std::string number(uint32_t value, size_t size, bool is_big) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i)
    bytes += static_cast<char>(value >> 8 * (is_big ? size - 1 - i : i));
  return bytes;
}

// A TIFF header with a directory of two entries.
std::string exif_data(uint32_t orientation, bool is_big, uint32_t type = 3) {
  const auto entry = [&](uint32_t tag, uint32_t value) {
    return number(tag, 2, is_big) + number(type, 2, is_big) + number(1, 4, is_big) +
           (type == 3 ? number(value, 2, is_big) + number(0, 2, is_big) : number(value, 4, is_big));
  };
  return (is_big ? "MM" : "II") + number(42, 2, is_big) + number(8, 4, is_big) +
         number(2, 2, is_big) + entry(0x0100, 7) + entry(0x0112, orientation) +
         number(0, 4, is_big);
}

std::string jpeg_with(const std::string& exif, const testing::Pixels& pixels) {
  std::string file = testing::encode_jpeg(pixels);
  const std::string content = std::string("Exif\0\0", 6) + exif;
  const std::string other = std::string("http://ns.adobe.com/xap/1.0/") + '\0' + "<x/>";
  const auto segment = [](const std::string& text) {
    return "\xff\xe1" + number(static_cast<uint32_t>(text.size()) + 2, 2, true) + text;
  };
  return file.insert(2, segment(other) + segment(content));
}

std::string png_with(const std::string& exif, const testing::Pixels& pixels) {
  std::string file = testing::encode_png_file(pixels);
  return file.insert(kAfterPngHeader, testing::png_chunk("eXIf", exif));
}

std::string webp_with(const std::string& exif, const testing::Pixels& pixels) {
  return testing::encode_webp(pixels) + "EXIF" +
         number(static_cast<uint32_t>(exif.size()), 4, false) + exif;
}

TEST(ExifOrientationTest, ReadsTagOfAllFormatsInBothByteOrders) {
  const testing::Pixels pixels = testing::pattern(5, 7);
  for (const bool is_big : {false, true})
    for (const uint32_t type : {3u, 4u, 9u}) {  // short, long, signed long
      const std::string exif = exif_data(6, is_big, type);
      EXPECT_EQ(exif_orientation(bytes_of(jpeg_with(exif, pixels))), kRotated);
      EXPECT_EQ(exif_orientation(bytes_of(png_with(exif, pixels))), kRotated);
      EXPECT_EQ(exif_orientation(bytes_of(webp_with(exif, pixels))), kRotated);
    }
}

TEST(ExifOrientationTest, TakesFilesWithoutValidTagAsUpright) {
  const testing::Pixels pixels = testing::pattern(5, 7);
  EXPECT_TRUE(exif_orientation(bytes_of(testing::encode_jpeg(pixels))).is_upright());
  EXPECT_TRUE(exif_orientation(bytes_of(testing::encode_png_file(pixels))).is_upright());
  EXPECT_TRUE(exif_orientation(bytes_of(testing::encode_webp(pixels))).is_upright());
  for (const uint32_t value : {0u, 1u, 9u, 65535u})
    EXPECT_TRUE(exif_orientation(bytes_of(png_with(exif_data(value, true), pixels))).is_upright());
  EXPECT_TRUE(exif_orientation(bytes_of(png_with("XX" + exif_data(6, true), pixels))).is_upright());
  for (const uint32_t type : {0u, 1u, 2u, 5u, 7u})  // byte, text, fraction, undefined
    for (const bool is_big : {false, true})
      EXPECT_TRUE(
          exif_orientation(bytes_of(png_with(exif_data(6, is_big, type), pixels))).is_upright())
          << type;
  EXPECT_TRUE(exif_orientation({}).is_upright());
}

TEST(ExifOrientationTest, ReadsNothingBeyondTruncatedFiles) {
  const testing::Pixels pixels = testing::pattern(5, 7);
  const std::string exif = exif_data(6, true);
  for (const std::string& file :
       {jpeg_with(exif, pixels), png_with(exif, pixels), webp_with(exif, pixels)})
    for (size_t size = 0; size < file.size(); ++size) {
      const std::vector<std::byte> part(bytes_of(file).begin(),
                                        bytes_of(file).begin() + static_cast<ptrdiff_t>(size));
      const Orientation orientation = exif_orientation(part);
      EXPECT_TRUE(orientation.is_upright() || orientation == kRotated) << size;
    }
  std::string endless = exif_data(6, true);
  endless.replace(8, 2, "\xff\xff");  // entries
  EXPECT_EQ(exif_orientation(bytes_of(png_with(endless, pixels))), kRotated);
  std::string far = exif_data(6, true);
  far.replace(4, 4, "\xff\xff\xff\xff");  // offset of the directory
  EXPECT_TRUE(exif_orientation(bytes_of(png_with(far, pixels))).is_upright());
}

// A region of the upright image is that of an image that is stored upright.
TEST(ExifOrientationTest, DecodesRegionsOfUprightImage) {
  const testing::Pixels upright = testing::gradient(40, 60, 3);
  testing::Pixels stored{.height = 60, .width = 40, .channels = 3, .samples = {}};
  for (uint32_t y = 0; y < stored.height; ++y)  // turned counterclockwise: tag 6
    for (uint32_t x = 0; x < stored.width; ++x)
      for (uint32_t c = 0; c < 3; ++c)
        stored.samples.push_back(upright.at(x, stored.height - 1 - y, c));
  const ImageShape shape{.channels = 3, .height = 9, .width = 17};
  const auto region = [](uint32_t height, uint32_t width) {
    EXPECT_EQ(height, 40u);
    EXPECT_EQ(width, 60u);
    return CropBox{.left = 20.5, .top = 3, .width = 30, .height = 21.25};
  };
  Decoder decoder;
  std::vector<std::byte> expected(shape.bytes()), planes(shape.bytes());
  const std::string plain = testing::encode_png_file(upright);
  const std::string turned = png_with(exif_data(6, true), stored);
  ASSERT_TRUE(decoder.decode(bytes_of(plain), shape, expected, region).ok());
  ASSERT_TRUE(decoder
                  .decode(bytes_of(turned), shape, planes, region,
                          {.orientation = exif_orientation(bytes_of(turned))})
                  .ok());
  for (size_t i = 0; i < planes.size(); ++i)
    ASSERT_NEAR(std::to_integer<int>(planes[i]), std::to_integer<int>(expected[i]), 1) << i;
}

}  // namespace
}  // namespace stoker::image
