// A JPEG rewritten with restart markers has identical pixels, and an extracted region is
// bit-identical to that region of the complete image.
#include "shared/image/jpeg_region.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/add_restart_markers.h"
#include "shared/image/decoder.h"
#include "tests/shared/image/image_files.h"
#include "tests/shared/image/sampling.h"

namespace stoker::image {
namespace {

using testing::bytes_of;
using testing::encode_jpeg;
using testing::gradient;
using testing::pattern;
using testing::Sampling;

using Bytes = std::vector<std::byte>;

// High-contrast, so that restart markers are worth their space.
std::string encoded_image(const Sampling& sampling, uint32_t height, uint32_t width) {
  testing::Pixels pixels = pattern(height, width);
  if (sampling.channels == 1) {
    for (size_t i = 0; i < size_t{height} * width; ++i) pixels.samples[i] = pixels.samples[3 * i];
    pixels.samples.resize(size_t{height} * width);
    pixels.channels = 1;
  }
  return encode_jpeg(pixels, sampling.options);
}

Bytes decode(Decoder& decoder, std::span<const std::byte> file, const ImageShape& shape,
             const CropFunction& region = {}) {
  Bytes planes(shape.bytes());
  const Status status = decoder.decode(file, shape, planes, region);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return planes;
}

Status decoding(std::span<const std::byte> file, const ImageShape& shape,
                const CropFunction& region = {}) {
  Bytes planes(shape.bytes());
  Decoder decoder;
  return decoder.decode(file, shape, planes, region);
}

size_t count_markers(std::span<const std::byte> file) {
  size_t markers = 0;
  for (size_t at = 0; at + 1 < file.size(); ++at)
    if (file[at] == std::byte{0xff} && (file[at + 1] & std::byte{0xf8}) == std::byte{0xd0})
      ++markers;
  return markers;
}

class RestartMarkerDecodingTest : public ::testing::TestWithParam<Sampling> {};

TEST_P(RestartMarkerDecodingTest, DecodesAnyRegionBitForBitWithRestartMarkers) {
  std::mt19937 random(7);
  const auto any = [&random](uint32_t from, uint32_t to) {
    return std::uniform_int_distribution<uint32_t>(from, to)(random);
  };
  Decoder decoder;
  for (int round = 0; round < 150; ++round) {
    const uint32_t height = any(96, 260), width = any(96, 260);
    const std::string file = encoded_image(GetParam(), height, width);
    const auto rewritten = add_restart_markers(bytes_of(file), {});
    ASSERT_TRUE(rewritten) << height << ' ' << width;
    ASSERT_GT(count_markers(*rewritten), 0u);
    CropBox box{
        .left = 0, .top = 0, .width = double(any(1, width)), .height = double(any(1, height))};
    box.left = any(0, width - static_cast<uint32_t>(box.width));
    box.top = any(0, height - static_cast<uint32_t>(box.height));
    const ImageShape shape{
        .channels = any(0, 3) == 0 ? 1u : 3u, .height = any(1, 90), .width = any(1, 90)};
    const auto region = [&](uint32_t h, uint32_t w) {
      EXPECT_EQ(h, height);
      EXPECT_EQ(w, width);
      return box;
    };
    ASSERT_EQ(decode(decoder, *rewritten, shape, region),
              decode(decoder, bytes_of(file), shape, region))
        << height << 'x' << width << ", part " << box.top << ' ' << box.left << ' ' << box.height
        << 'x' << box.width << " to " << shape.height << 'x' << shape.width;
  }
}

INSTANTIATE_TEST_SUITE_P(Samplings, RestartMarkerDecodingTest,
                         ::testing::Values(Sampling{"4:2:0", 3, {}},
                                           Sampling{"4:2:2", 3, {.across = 2, .down = 1}},
                                           Sampling{"4:4:0", 3, {.across = 1, .down = 2}},
                                           Sampling{"4:4:4", 3, {.across = 1, .down = 1}},
                                           Sampling{"restart markers", 3, {.restart_rows = 1}},
                                           Sampling{"progressive", 3, {.progressive = true}},
                                           Sampling{"gray", 1, {}},
                                           Sampling{"gray progressive", 1, {.progressive = true}}));

// ---- Files that are not rewritten

TEST(AddRestartMarkersTest, RejectsUnsupportedFormatsAndSizes) {
  const auto is_rewritten = [](const std::string& file, const DecodeLimits& limits = {}) {
    return add_restart_markers(bytes_of(file), limits).has_value();
  };
  EXPECT_TRUE(is_rewritten(encode_jpeg(pattern(120, 120))));
  EXPECT_FALSE(is_rewritten(""));
  EXPECT_FALSE(is_rewritten("GIF89a and so on"));
  EXPECT_FALSE(is_rewritten(testing::encode_png_file(pattern(120, 120))));
  EXPECT_FALSE(is_rewritten(testing::encode_webp(pattern(120, 120))));
  EXPECT_FALSE(is_rewritten(encode_jpeg(pattern(32, 32))));
  EXPECT_FALSE(is_rewritten(encode_jpeg(gradient(120, 120, 4))));
  EXPECT_FALSE(is_rewritten(encode_jpeg(pattern(120, 120), {.across = 4, .down = 1})));
  EXPECT_FALSE(is_rewritten(encode_jpeg(pattern(120, 120)), {.pixels = 120 * 120 - 1}));
  EXPECT_FALSE(is_rewritten(encode_jpeg(pattern(120, 120)), {.memory_bytes = 1000}));
  EXPECT_FALSE(is_rewritten(
      encode_jpeg(gradient(120, 120, 1), {.progressive = true, .extra_scans = 20}), {.scans = 10}));
}

// A baseline JPEG whose header states another size.
std::string with_size(std::string file, uint32_t height, uint32_t width) {
  const size_t at = file.find("\xff\xc0") + 5;
  const uint32_t both = height << 16 | width;
  for (size_t i = 0; i < 4; ++i) file.at(at + i) = static_cast<char>(both >> (24 - 8 * i));
  return file;
}

TEST(AddRestartMarkersTest, RecognizesFromHeaderWhatIsNeverRewritten) {
  const auto may_be = [](const std::string& file) {
    return may_be_rewritten(bytes_of(file), kRewritingLimits);
  };
  const std::string color = encode_jpeg(pattern(120, 130)),
                    gray = encode_jpeg(gradient(120, 130, 1));
  EXPECT_TRUE(may_be(color));
  EXPECT_TRUE(may_be(encode_jpeg(pattern(120, 130), {.progressive = true})));
  EXPECT_TRUE(may_be(with_size(color, 96, 96)));
  EXPECT_FALSE(may_be(with_size(color, 95, 96)));
  EXPECT_FALSE(may_be(with_size(color, 96, 95)));
  // 128 MiB of coefficients: at least 1.5 of two bytes a pixel, or one if it is gray.
  EXPECT_TRUE(may_be(with_size(color, 6000, 7000)));
  EXPECT_FALSE(may_be(with_size(color, 7000, 7000)));
  EXPECT_TRUE(may_be(with_size(gray, 8000, 8000)));
  EXPECT_FALSE(may_be(with_size(gray, 8000, 9000)));
  EXPECT_FALSE(may_be(encode_jpeg(gradient(120, 120, 4))));
  EXPECT_FALSE(may_be(testing::encode_png_file(pattern(120, 120))));
  EXPECT_FALSE(may_be(color.substr(0, 20)));
  EXPECT_FALSE(may_be(""));
}

// libjpeg reports it like a corrupt file.
TEST(AddRestartMarkersTest, ThrowsIfMemoryOfProcessIsExhausted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need address space";
#endif
  const std::string file = encode_jpeg(testing::plain(3000, 4000, {200, 100, 50}));
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + (8 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
  bool has_thrown = false;
  try {
    (void)add_restart_markers(bytes_of(file), kRewritingLimits);
  } catch (const std::bad_alloc&) {
    has_thrown = true;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_TRUE(has_thrown);
  EXPECT_TRUE(add_restart_markers(bytes_of(file), kRewritingLimits).has_value());
}

TEST(AddRestartMarkersTest, RejectsTruncationAtAnyByte) {
  const std::string file = encode_jpeg(pattern(120, 120));
  for (size_t length = 0; length + 2 < file.size(); length += 37)
    ASSERT_FALSE(add_restart_markers(bytes_of(file).first(length), {})) << length;
}

// ---- Results of another process

TEST(PossibleResultTest, IsJpegOfSameSizeAndComponents) {
  const std::string file = encode_jpeg(pattern(120, 130));
  const auto is_possible = [&file](const std::string& result) {
    return is_possible_result(bytes_of(result), bytes_of(file));
  };
  EXPECT_TRUE(is_possible(file));
  EXPECT_TRUE(is_possible(encode_jpeg(gradient(120, 130, 3), {.progressive = true})));
  EXPECT_TRUE(is_possible(file.substr(0, 2) + "garbage\xff\xff" + file.substr(2)));
  EXPECT_FALSE(is_possible(encode_jpeg(pattern(130, 120))));
  EXPECT_FALSE(is_possible(encode_jpeg(gradient(120, 130, 1))));
  EXPECT_FALSE(is_possible(testing::encode_png_file(pattern(120, 130))));
  EXPECT_FALSE(is_possible(std::string(100, '\0')));
  EXPECT_FALSE(is_possible(""));
  EXPECT_TRUE(is_possible(file + std::string(file.size() / 8 + 1024, '\0')));
  EXPECT_FALSE(is_possible(file + std::string(file.size() / 8 + 1025, '\0')));
}

TEST(PossibleResultTest, IsNotFileThatEndsBeforeItsFrame) {
  const std::string file = encode_jpeg(pattern(120, 130));
  bool had_frame = false;
  for (size_t length = 0; length <= file.size(); ++length) {
    const auto cut = bytes_of(file).first(length);
    const bool has_frame = is_possible_result(cut, cut);
    ASSERT_TRUE(has_frame || !had_frame) << length;
    had_frame = has_frame;
  }
  EXPECT_TRUE(had_frame);
}

// ---- Extraction

class JpegRegionTest : public ::testing::Test {
 protected:
  // 160 x 160 pixels, 4:2:0: 10 MCUs per row, restart intervals of 2 MCUs, 5 intervals per row.
  void SetUp() override {
    file_ = *add_restart_markers(bytes_of(encode_jpeg(pattern(160, 160))), {});
  }

  std::optional<JpegRegion> cut(const PixelBounds& region) {
    return extract_jpeg_region(file_, grid_, region, buffer_);
  }

  JpegGrid grid_{.height = 160, .width = 160, .unit_height = 16, .unit_width = 16, .interval = 2};
  Bytes file_, buffer_;
};

TEST_F(JpegRegionTest, ContainsRestartIntervalsOfRequestedRegion) {
  const auto region = cut({.top = 17, .left = 33, .bottom = 40, .right = 65});
  ASSERT_TRUE(region);
  EXPECT_EQ(region->top, 16u);
  EXPECT_EQ(region->left, 32u);
  EXPECT_EQ(count_markers(region->file), 3u);  // two rows of two intervals
  EXPECT_LT(region->file.size(), file_.size() / 2);
  // Decodes like any JPEG of 64 x 32 pixels.
  const ImageShape shape{.channels = 3, .height = 32, .width = 64};
  EXPECT_TRUE(decoding(region->file, shape, [](uint32_t height, uint32_t width) {
                EXPECT_EQ(height, 32u);
                EXPECT_EQ(width, 64u);
                return CropBox{.left = 0, .top = 0, .width = 64, .height = 32};
              }).ok());
}

TEST_F(JpegRegionTest, IsNotExtractedWhenItWouldOmitNothing) {
  EXPECT_FALSE(cut({.top = 0, .left = 0, .bottom = 160, .right = 160}));
  // The rows below are not decoded in any case.
  EXPECT_FALSE(cut({.top = 3, .left = 3, .bottom = 9, .right = 159}));
  EXPECT_TRUE(cut({.top = 16, .left = 0, .bottom = 160, .right = 160}));
}

TEST_F(JpegRegionTest, IsNotExtractedWhenMarkersDoNotDivideRows) {
  const PixelBounds region{.top = 50, .left = 50, .bottom = 60, .right = 60};
  ASSERT_TRUE(cut(region));
  for (const uint32_t interval : {0u, 3u, 4u, 20u}) {
    grid_.interval = interval;
    EXPECT_FALSE(cut(region)) << interval;
  }
}

TEST_F(JpegRegionTest, IsNotExtractedFromFileTruncatedBeforeRegionEnd) {
  const PixelBounds region{.top = 140, .left = 50, .bottom = 160, .right = 160};
  const Bytes whole = file_;
  ASSERT_TRUE(cut(region));
  for (size_t length = 0; length < whole.size(); length += 29) {
    file_.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    ASSERT_FALSE(cut(region)) << length;
  }
}

TEST_F(JpegRegionTest, IsNotExtractedOnMissingOrMisorderedMarker) {
  const PixelBounds region{.top = 140, .left = 50, .bottom = 160, .right = 160};
  const Bytes whole = file_;
  for (size_t at = 0; at + 1 < whole.size(); ++at) {
    if (count_markers(std::span(whole).subspan(at, 2)) == 0) continue;
    file_ = whole;
    file_[at + 1] ^= std::byte{0x01};
    EXPECT_FALSE(cut(region)) << at;
    file_.erase(file_.begin() + static_cast<ptrdiff_t>(at),
                file_.begin() + static_cast<ptrdiff_t>(at + 2));
    EXPECT_FALSE(cut(region)) << at;
  }
}

TEST(JpegRegionDecodingTest, DetectsCorruptionOnlyInsideRegion) {
  const ImageShape shape{.channels = 3, .height = 32, .width = 32};
  const auto middle = [](uint32_t, uint32_t) {
    return CropBox{.left = 64, .top = 64, .width = 32, .height = 32};
  };
  const auto corner = [](uint32_t, uint32_t) {
    return CropBox{.left = 0, .top = 120, .width = 32, .height = 32};
  };
  Bytes file = *add_restart_markers(bytes_of(encode_jpeg(pattern(160, 160))), {});
  // Fills the restart interval in the middle (row index 5, interval index 2) with ones, which is
  // not a valid code.
  size_t markers = 0, at = 0;
  for (; markers < 5 * 5 + 2 && at + 2 <= file.size(); ++at)
    if (count_markers(std::span(file).subspan(at, 2)) == 1) ++markers;
  ASSERT_LT(at + 13, file.size());
  for (size_t i = at + 3; i < at + 13; i += 2) {
    file[i] = std::byte{0xff};
    file[i + 1] = std::byte{0x00};
  }
  EXPECT_EQ(decoding(file, shape, middle).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(decoding(file, shape, corner).ok());
}

}  // namespace
}  // namespace stoker::image
