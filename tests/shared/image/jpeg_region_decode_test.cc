// A decoded region of a JPEG is bit-identical to that region of the complete image, and decoding
// does not depend on previous images.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/image/decoded_image.h"
#include "tests/shared/image/image_files.h"
#include "tests/shared/image/sampling.h"

namespace stoker::image {
namespace {

using testing::decode;
using testing::DecodedImage;
using testing::encode_jpeg;
using testing::pattern;
using testing::Sampling;

constexpr uint32_t kHeight = 101, kWidth = 139;

std::vector<std::byte> crop(const std::vector<std::byte>& planes, const ImageShape& whole,
                            uint32_t left, uint32_t top, const ImageShape& region) {
  std::vector<std::byte> cut;
  for (uint32_t c = 0; c < region.channels; ++c) {
    for (uint32_t y = 0; y < region.height; ++y) {
      const size_t row = (size_t{c} * whole.height + top + y) * whole.width + left;
      cut.insert(cut.end(), planes.begin() + static_cast<ptrdiff_t>(row),
                 planes.begin() + static_cast<ptrdiff_t>(row + region.width));
    }
  }
  return cut;
}

class JpegCropDecodingTest : public ::testing::TestWithParam<Sampling> {};

// Checks regions whose size in the file divided by `scale` is the output size, at all kinds of
// positions.
void expect_parts(const Sampling& sampling, uint32_t scale, uint32_t channels) {
  const testing::Pixels pixels =
      sampling.channels == 3
          ? pattern(kHeight * scale, kWidth * scale)
          : testing::gradient(kHeight * scale, kWidth * scale, sampling.channels);
  const std::string file = encode_jpeg(pixels, sampling.options);
  Decoder decoder;
  const ImageShape whole{.channels = channels, .height = kHeight, .width = kWidth};
  const DecodedImage all = decode(decoder, file, whole);
  ASSERT_TRUE(all.status.ok()) << all.status.to_string();
  std::mt19937 random(scale);
  for (uint32_t round = 0; round < 120 / scale; ++round) {
    ImageShape shape{.channels = channels};
    shape.height = 1 + static_cast<uint32_t>(random()) % kHeight;
    shape.width = 1 + static_cast<uint32_t>(random()) % kWidth;
    const uint32_t top = static_cast<uint32_t>(random()) % (kHeight - shape.height + 1);
    const uint32_t left = static_cast<uint32_t>(random()) % (kWidth - shape.width + 1);
    const DecodedImage region = decode(decoder, file, shape, [&](uint32_t height, uint32_t width) {
      EXPECT_EQ(height, kHeight * scale);
      EXPECT_EQ(width, kWidth * scale);
      return CropBox{.left = double(left * scale),
                     .top = double(top * scale),
                     .width = double(shape.width * scale),
                     .height = double(shape.height * scale)};
    });
    ASSERT_TRUE(region.status.ok()) << region.status.to_string();
    ASSERT_EQ(region.planes, crop(all.planes, whole, left, top, shape))
        << left << ' ' << top << ' ' << shape.width << 'x' << shape.height;
  }
}

TEST_P(JpegCropDecodingTest, MatchesCropOfFullImage) { expect_parts(GetParam(), 1, 3); }
TEST_P(JpegCropDecodingTest, MatchesCropOfFullImageInGray) { expect_parts(GetParam(), 1, 1); }
TEST_P(JpegCropDecodingTest, MatchesCropOfFullImageAtHalfSize) { expect_parts(GetParam(), 2, 3); }
TEST_P(JpegCropDecodingTest, MatchesCropOfFullImageAtEighthSize) { expect_parts(GetParam(), 8, 3); }

INSTANTIATE_TEST_SUITE_P(Samplings, JpegCropDecodingTest,
                         ::testing::Values(Sampling{"4:2:0", 3, {}},
                                           Sampling{"4:2:2", 3, {.across = 2, .down = 1}},
                                           Sampling{"4:4:0", 3, {.across = 1, .down = 2}},
                                           Sampling{"4:4:4", 3, {.across = 1, .down = 1}},
                                           Sampling{"4:1:1", 3, {.across = 4, .down = 1}},
                                           Sampling{"4:1:0", 3, {.across = 4, .down = 2}},
                                           Sampling{"restart markers", 3, {.restart_rows = 1}},
                                           Sampling{"progressive", 3, {.progressive = true}},
                                           Sampling{"gray", 1, {}}, Sampling{"CMYK", 4, {}}));

TEST(JpegCropCorruptionTest, IgnoresTruncationBeyondCrop) {
  std::string file = encode_jpeg(pattern(200, 40));
  file.resize(file.size() * 3 / 4);
  const auto upper = [](uint32_t, uint32_t width) {
    return CropBox{.left = 0, .top = 0, .width = double(width), .height = 40};
  };
  Decoder decoder;
  const ImageShape shape{.channels = 3, .height = 40, .width = 40};
  EXPECT_TRUE(decode(decoder, file, shape, upper).status.ok());
  EXPECT_EQ(decode(decoder, file, shape).status.code(), StatusCode::kCorrupt);
}

// ---- Reuse of the decompressor

// Removes the segments with this marker.
std::string without(const std::string& file, char marker) {
  std::string remaining = file.substr(0, 2);
  size_t at = 2;
  while (file[at + 1] != '\xda') {
    const size_t bytes =
        2 + (static_cast<uint8_t>(file[at + 2]) << 8 | static_cast<uint8_t>(file[at + 3]));
    if (file[at + 1] != marker) remaining += file.substr(at, bytes);
    at += bytes;
  }
  return remaining + file.substr(at);
}

const ImageShape kSmall{.channels = 3, .height = 24, .width = 32};

TEST(JpegReaderTest, DecodesIndependentlyOfPreviousImage) {
  const std::string coarse = encode_jpeg(pattern(24, 32), {.quality = 20});
  const std::string fine = encode_jpeg(pattern(24, 32), {.quality = 95});
  const std::string gray = encode_jpeg(testing::gradient(24, 32, 1));
  const std::string progressive = encode_jpeg(pattern(24, 32), {.progressive = true});
  // libjpeg uses the default tables of the JPEG standard if a file has none.
  const std::string bare = without(fine, '\xc4');
  const std::vector<std::string> files{coarse, fine, gray, progressive, bare};
  std::vector<DecodedImage> alone;
  for (const std::string& file : files) {
    Decoder fresh;
    alone.push_back(decode(fresh, file, kSmall));
    ASSERT_TRUE(alone.back().status.ok()) << alone.back().status.to_string();
  }
  EXPECT_EQ(alone[4].planes, alone[1].planes);

  Decoder decoder;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const size_t which = random() % files.size();
    EXPECT_EQ(decode(decoder, files[which], kSmall).planes, alone[which].planes);
  }
}

TEST(JpegReaderTest, RejectsImageWithoutTablesAfterValidImage) {
  const std::string file = encode_jpeg(pattern(24, 32), {.quality = 20});
  Decoder decoder;
  ASSERT_TRUE(decode(decoder, file, kSmall).status.ok());
  EXPECT_EQ(decode(decoder, without(file, '\xdb'), kSmall).status.code(), StatusCode::kCorrupt);
}

TEST(JpegReaderTest, DecodesValidImageAfterCorruptImage) {
  const std::string good = encode_jpeg(pattern(24, 32));
  Decoder decoder;
  const DecodedImage expected = decode(decoder, good, kSmall);
  for (size_t length = 0; length < good.size() - 2; length += 11) {
    ASSERT_FALSE(decode(decoder, good.substr(0, length), kSmall).status.ok()) << length;
    ASSERT_EQ(decode(decoder, good, kSmall).planes, expected.planes) << length;
  }
}

}  // namespace
}  // namespace stoker::image
