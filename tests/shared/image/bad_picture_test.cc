// Pictures that are damaged, or made to harm.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "tests/shared/image/picture_files.h"

namespace stoker::image {
namespace {

using testing::bytes_of;
using testing::gradient;
using ::testing::HasSubstr;
using testing::jpeg_of;
using testing::pattern;
using testing::png_chunk;
using testing::png_header;
using testing::png_of;

Status decode(const std::string& file, const Limits& limits = {}) {
  const PictureShape shape{.channels = 3, .height = 24, .width = 24};
  std::vector<std::byte> planes(shape.bytes());
  Decoder decoder(limits);
  return decoder.decode(bytes_of(file), shape, planes);
}

void expect_corrupt(const std::string& file, const std::string& reason, const Limits& limits = {}) {
  const Status status = decode(file, limits);
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(reason));
}

// A JPEG whose frame header claims another size.
std::string with_jpeg_size(std::string file, uint16_t height, uint16_t width) {
  const size_t frame = std::min(file.find("\xff\xc0"), file.find("\xff\xc2"));
  for (size_t i = 0; i < 2; ++i) {
    file[frame + 5 + i] = static_cast<char>(height >> (8 - 8 * i));
    file[frame + 7 + i] = static_cast<char>(width >> (8 - 8 * i));
  }
  return file;
}

TEST(BadPicture, NothingAndOtherFormatsAreNamed) {
  expect_corrupt("", "empty");
  expect_corrupt("GIF89a and so on", "not a JPEG, PNG or WebP");
  expect_corrupt(std::string(100, '\0'), "not a JPEG, PNG or WebP");
}

TEST(BadJpeg, MagicFollowedByGarbage) {
  expect_corrupt("\xff\xd8\xff" + std::string(2000, 'x'), "JPEG: ");
}

TEST(BadJpeg, EveryTruncationIsAnError) {
  for (const bool progressive : {false, true}) {
    const std::string file = jpeg_of(pattern(40, 40), {.progressive = progressive});
    // The end marker's two bytes may be missing: all pixels are there.
    for (size_t length = 0; length + 8 < file.size(); length += 7)
      ASSERT_EQ(decode(file.substr(0, length)).code(), Code::kCorrupt) << length;
  }
}

TEST(BadJpeg, TruncationSaysWhat) {
  const std::string file = jpeg_of(pattern(100, 100));
  expect_corrupt(file.substr(0, file.size() / 2), "JPEG: Premature end");
}

TEST(BadJpeg, BytesAfterTheEndDoNoHarm) {
  EXPECT_TRUE(decode(jpeg_of(pattern(40, 40)) + "trailing bytes").ok());
}

TEST(BadJpeg, FaultRow59ClaimedSizePastTheLimitIsRefused) {
  expect_corrupt(with_jpeg_size(jpeg_of(gradient(16, 16, 3)), 60000, 60000),
                 "60000x60000 pixels: more than the limit");
}

TEST(BadJpeg, ClaimedSizeWithoutTheDataIsAnError) {
  expect_corrupt(with_jpeg_size(jpeg_of(gradient(16, 16, 3)), 5000, 5000), "JPEG: ");
}

TEST(BadJpeg, ProgressiveThatNeedsTooMuchMemoryIsRefused) {
  const std::string file =
      with_jpeg_size(jpeg_of(gradient(16, 16, 3), {.progressive = true}), 9000, 9000);
  expect_corrupt(file, "memory", {.memory_bytes = 10 << 20});
}

TEST(BadJpeg, FaultRow59TooManyScansAreRefused) {
  const std::string file = jpeg_of(gradient(64, 64, 1), {.progressive = true, .extra_scans = 60});
  EXPECT_TRUE(decode(file).ok());
  expect_corrupt(file, "more than 20 scans", {.scans = 20});
}

TEST(BadPng, EveryTruncationIsAnError) {
  for (const bool interlaced : {false, true}) {
    const std::string file = png_of(pattern(20, 20), {.interlaced = interlaced});
    // Up to the end chunk of 12 bytes.
    for (size_t length = 0; length + 12 < file.size(); ++length)
      ASSERT_EQ(decode(file.substr(0, length)).code(), Code::kCorrupt) << length;
  }
}

TEST(BadPng, EveryFlippedBitInThePixelsIsAnError) {
  const std::string file = png_of(pattern(12, 12));
  const size_t begin = file.find("IDAT"), end = file.find("IEND") - 4;
  for (size_t at = begin; at < end; ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    ASSERT_EQ(decode(damaged).code(), Code::kCorrupt) << at;
  }
}

TEST(BadPng, FaultRow59ClaimedSizePastTheLimitIsRefused) {
  expect_corrupt(png_header(60000, 60000, {}) + png_chunk("IDAT", "x"),
                 "60000x60000 pixels: more than the limit");
  expect_corrupt(png_header(1, 100000, {}) + png_chunk("IDAT", "x"), "more than the limit");
  expect_corrupt(png_header(1, 0x7fffffff, {}) + png_chunk("IDAT", "x"), "PNG: ");
  expect_corrupt(png_header(0xffffffff, 0xffffffff, {}) + png_chunk("IDAT", "x"), "PNG: ");
  expect_corrupt(png_header(0, 5, {}) + png_chunk("IDAT", "x"), "PNG: ");
}

TEST(BadPng, FileTooShortForItsClaimIsRefusedBeforeAnythingIsAllocated) {
  expect_corrupt(png_header(9000, 9000, {}) + png_chunk("IDAT", "x"),
                 "cannot hold the 9000x9000 pixels");
}

TEST(BadPng, InterlacedPastTheMemoryLimitIsRefused) {
  const std::string file = png_of(pattern(200, 200), {.interlaced = true});
  expect_corrupt(file, "bytes of memory", {.memory_bytes = 1000});
}

TEST(BadPng, FaultRow58HugeChunkLengthIsAnError) {
  expect_corrupt(png_header(8, 8, {}) + "\x7f\xff\xff\xf0" + "tEXt", "PNG: ");
}

TEST(BadPng, PaletteThatIsMissingIsAnError) {
  expect_corrupt(png_of(testing::plain(5, 7, {2}), {.color_type = 3}), "PNG: ");
}

// Whatever bytes come: a status, never a crash. The sanitizers look on.
TEST(BadPicture, RandomDamageNeverCrashes) {
  std::mt19937 random(1);
  const std::vector<std::string> files{
      jpeg_of(pattern(40, 50)), jpeg_of(pattern(40, 50), {.progressive = true}),
      jpeg_of(testing::plain(20, 20, {1, 2, 3, 4})), png_of(pattern(40, 50)),
      png_of(pattern(40, 50), {.interlaced = true})};
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = files[random() % files.size()];
    for (uint32_t i = 0, n = 1 + random() % 8; i < n; ++i)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    const Status status = decode(damaged);
    EXPECT_EQ(status.ok(), status.message().empty());
  }
}

}  // namespace
}  // namespace stoker::image
