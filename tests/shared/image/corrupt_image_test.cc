// Decoding of corrupt and malicious images.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/test_seed.h"

namespace stoker::image {
namespace {

using testing::bytes_of;
using testing::encode_jpeg;
using testing::encode_png_file;
using testing::gradient;
using ::testing::HasSubstr;
using testing::pattern;
using testing::png_chunk;
using testing::png_header;

Status decode(const std::string& file, const DecodeLimits& limits = {}) {
  const ImageShape shape{.channels = 3, .height = 24, .width = 24};
  std::vector<std::byte> planes(shape.bytes());
  Decoder decoder(limits);
  return decoder.decode(bytes_of(file), shape, planes);
}

void expect_corrupt(const std::string& file, const std::string& reason,
                    const DecodeLimits& limits = {}) {
  const Status status = decode(file, limits);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(reason));
}

// A JPEG whose frame header declares another size.
std::string with_jpeg_size(std::string file, uint16_t height, uint16_t width) {
  const size_t frame = std::min(file.find("\xff\xc0"), file.find("\xff\xc2"));
  for (size_t i = 0; i < 2; ++i) {
    file[frame + 5 + i] = static_cast<char>(height >> (8 - 8 * i));
    file[frame + 7 + i] = static_cast<char>(width >> (8 - 8 * i));
  }
  return file;
}

TEST(CorruptImageTest, ReportsEmptyFileAndUnknownFormat) {
  expect_corrupt("", "empty");
  expect_corrupt("GIF89a and so on", "not a JPEG, PNG or WebP");
  expect_corrupt(std::string(100, '\0'), "not a JPEG, PNG or WebP");
}

TEST(CorruptJpegTest, RejectsGarbageAfterMagicBytes) {
  expect_corrupt("\xff\xd8\xff" + std::string(2000, 'x'), "JPEG: ");
}

TEST(CorruptJpegTest, RejectsTruncationAtAnyByte) {
  for (const bool progressive : {false, true}) {
    const std::string file = encode_jpeg(pattern(40, 40), {.progressive = progressive});
    // The end marker (two bytes) can be missing without loss of pixels.
    for (size_t length = 0; length + 8 < file.size(); length += 7)
      ASSERT_EQ(decode(file.substr(0, length)).code(), StatusCode::kCorrupt) << length;
  }
}

TEST(CorruptJpegTest, ReportsPrematureEndOnTruncation) {
  const std::string file = encode_jpeg(pattern(100, 100));
  expect_corrupt(file.substr(0, file.size() / 2), "JPEG: Premature end");
}

TEST(CorruptJpegTest, IgnoresBytesAfterEnd) {
  EXPECT_TRUE(decode(encode_jpeg(pattern(40, 40)) + "trailing bytes").ok());
}

TEST(CorruptJpegTest, RejectsHeaderSizeBeyondLimit) {
  expect_corrupt(with_jpeg_size(encode_jpeg(gradient(16, 16, 3)), 60000, 60000),
                 "60000x60000 pixels: more than the limit");
}

TEST(CorruptJpegTest, RejectsHeaderSizeWithoutMatchingData) {
  expect_corrupt(with_jpeg_size(encode_jpeg(gradient(16, 16, 3)), 5000, 5000), "JPEG: ");
}

TEST(CorruptJpegTest, RejectsProgressiveImageBeyondMemoryLimit) {
  const std::string file =
      with_jpeg_size(encode_jpeg(gradient(16, 16, 3), {.progressive = true}), 9000, 9000);
  expect_corrupt(file, "memory", {.memory_bytes = 10 << 20});
}

TEST(CorruptJpegTest, RejectsTooManyScans) {
  const std::string file =
      encode_jpeg(gradient(64, 64, 1), {.progressive = true, .extra_scans = 60});
  EXPECT_TRUE(decode(file).ok());
  expect_corrupt(file, "more than 20 scans", {.scans = 20});
}

TEST(CorruptPngTest, RejectsTruncationAtAnyByte) {
  for (const bool interlaced : {false, true}) {
    const std::string file = encode_png_file(pattern(20, 20), {.interlaced = interlaced});
    // Up to the end chunk of 12 bytes.
    for (size_t length = 0; length + 12 < file.size(); ++length)
      ASSERT_EQ(decode(file.substr(0, length)).code(), StatusCode::kCorrupt) << length;
  }
}

TEST(CorruptPngTest, DetectsFlippedBitInPixelData) {
  const std::string file = encode_png_file(pattern(12, 12));
  const size_t begin = file.find("IDAT"), end = file.find("IEND") - 4;
  for (size_t at = begin; at < end; ++at) {
    std::string corrupted = file;
    corrupted[at] = static_cast<char>(corrupted[at] ^ 0x10);
    ASSERT_EQ(decode(corrupted).code(), StatusCode::kCorrupt) << at;
  }
}

TEST(CorruptPngTest, RejectsHeaderSizeBeyondLimit) {
  expect_corrupt(png_header(60000, 60000, {}) + png_chunk("IDAT", "x"),
                 "60000x60000 pixels: more than the limit");
  expect_corrupt(png_header(1, 100000, {}) + png_chunk("IDAT", "x"), "more than the limit");
  expect_corrupt(png_header(1, 0x7fffffff, {}) + png_chunk("IDAT", "x"), "PNG: ");
  expect_corrupt(png_header(0xffffffff, 0xffffffff, {}) + png_chunk("IDAT", "x"), "PNG: ");
  expect_corrupt(png_header(0, 5, {}) + png_chunk("IDAT", "x"), "PNG: ");
}

TEST(CorruptPngTest, RejectsTooShortFileBeforeAllocation) {
  expect_corrupt(png_header(9000, 9000, {}) + png_chunk("IDAT", "x"),
                 "too few for the 9000x9000 pixels");
}

TEST(CorruptPngTest, RejectsInterlacedImageBeyondMemoryLimit) {
  const std::string file = encode_png_file(pattern(200, 200), {.interlaced = true});
  expect_corrupt(file, "bytes of memory", {.memory_bytes = 1000});
}

TEST(CorruptPngTest, RejectsHugeChunkLength) {
  expect_corrupt(png_header(8, 8, {}) + "\x7f\xff\xff\xf0" + "tEXt", "PNG: ");
}

TEST(CorruptPngTest, RejectsMissingPalette) {
  expect_corrupt(encode_png_file(testing::plain(5, 7, {2}), {.color_type = 3}), "PNG: ");
}

}  // namespace
}  // namespace stoker::image
