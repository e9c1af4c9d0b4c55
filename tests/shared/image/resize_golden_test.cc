// The resize against Pillow, by numbers that make_resize_golden.py took from it.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/image/decoder.h"
#include "shared/image/resample_kernel.h"
#include "shared/image/resizer.h"
#include "tests/shared/image/image_files.h"

namespace stoker::image {
namespace {

struct Golden {
  std::string text;  // of the line, without the numbers
  testing::Pixels image;
  CropBox box;
  ImageShape shape;
  std::vector<int> planes;
};

testing::Pixels image_of(const std::string& name, uint32_t height, uint32_t width) {
  testing::Pixels pixels = testing::pattern(height, width);
  if (name == "pattern") return pixels;
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x)
      for (uint32_t c = 0; c < 3; ++c)
        pixels.samples[(size_t{y} * width + x) * 3 + c] =
            name == "white" || (x / 3 + y / 2 + c) % 2 ? 255 : 0;
  return pixels;
}

Golden golden_of(const std::string& line) {
  std::istringstream words(line);
  std::string name, digits;
  uint32_t height = 0, width = 0;
  Golden golden;
  words >> name >> height >> width >> golden.shape.channels >> golden.box.left >> golden.box.top >>
      golden.box.width >> golden.box.height >> golden.shape.height >> golden.shape.width >> digits;
  golden.text = line.substr(0, line.size() - digits.size());
  golden.image = image_of(name, height, width);
  for (size_t i = 0; i < digits.size(); i += 2)
    golden.planes.push_back(std::stoi(digits.substr(i, 2), nullptr, 16));
  return golden;
}

std::vector<Golden> goldens() {
  std::ifstream file(STOKER_RESIZE_GOLDEN);
  std::vector<Golden> all;
  for (std::string line; std::getline(file, line);)
    if (!line.starts_with('#')) all.push_back(golden_of(line));
  return all;
}

TEST(ResizeGoldenTest, MatchesPillowWithinOneLevel) {
  const auto all = goldens();
  ASSERT_GE(all.size(), 20u);
  Decoder decoder;  // the same one: what it keeps of one picture must not show in the next
  for (const Golden& golden : all) {
    SCOPED_TRACE(golden.text);
    ASSERT_EQ(golden.planes.size(), golden.shape.bytes());
    std::vector<std::byte> planes(golden.shape.bytes());
    const std::string file = testing::encode_png_file(golden.image);
    const auto part = [&](uint32_t, uint32_t) { return golden.box; };
    ASSERT_TRUE(decoder.decode(testing::bytes_of(file), golden.shape, planes, part).ok());
    for (size_t i = 0; i < planes.size(); ++i)
      ASSERT_NEAR(std::to_integer<int>(planes[i]), golden.planes[i], 1) << i;
  }
}

template <typename AnyResizer>
std::vector<std::byte> resized(const testing::Pixels& image, const CropBox& box,
                               const ImageShape& shape) {
  ResampleKernel across, down;
  across.prepare(image.width, box.left, box.width, shape.width);
  down.prepare(image.height, box.top, box.height, shape.height);
  std::vector<std::byte> planes(shape.bytes());
  AnyResizer resizer;
  const size_t row_bytes = size_t{image.width} * image.channels;
  resizer.begin(across, down, shape, planes, row_bytes, 0);
  for (uint32_t y = down.first(); y < down.end(); ++y) {
    std::copy_n(image.samples.data() + y * row_bytes, row_bytes, resizer.next_row());
    resizer.push();
  }
  return planes;
}

testing::Pixels noise(uint32_t height, uint32_t width, uint32_t channels, std::mt19937& random) {
  testing::Pixels pixels{.height = height, .width = width, .channels = channels, .samples = {}};
  pixels.samples.resize(size_t{height} * width * channels);
  // Hard on rounding: half of it black and white.
  for (uint8_t& sample : pixels.samples)
    sample = static_cast<uint8_t>(random() % 2 ? random() : random() % 2 * 255);
  return pixels;
}

TEST(BlockResizerTest, MatchesExactResizeWithinOneLevel) {
  std::mt19937 random(1);
  const auto between = [&](uint32_t least, uint32_t most) {
    return least + static_cast<uint32_t>(random()) % (most - least + 1);
  };
  for (int round = 0; round < 300; ++round) {
    const ImageShape shape{
        .channels = random() % 2 ? 3u : 1u, .height = between(1, 70), .width = between(1, 70)};
    const testing::Pixels image = noise(between(1, 150), between(1, 150), shape.channels, random);
    std::uniform_real_distribution<double> part(0.02, 1);
    CropBox box{.width = part(random) * image.width, .height = part(random) * image.height};
    box.left = (image.width - box.width) * part(random);
    box.top = (image.height - box.height) * part(random);
    if (box.width / shape.width > 14 || box.height / shape.height > 14) continue;
    const auto fast = resized<BlockResizer>(image, box, shape);
    const auto exact = resized<RowResizer>(image, box, shape);
    for (size_t i = 0; i < fast.size(); ++i)
      ASSERT_LE(std::abs(std::to_integer<int>(fast[i]) - std::to_integer<int>(exact[i])), 1)
          << round << ' ' << i;
  }
}

TEST(BlockResizerTest, PreservesWhiteAndBlackAtEveryScale) {
  for (const uint8_t color : {0, 255}) {
    testing::Pixels image{.height = 100, .width = 100, .channels = 1, .samples = {}};
    image.samples.assign(10000, color);
    for (uint32_t side = 7; side < 300; side += 3) {
      const ImageShape shape{.channels = 1, .height = side, .width = side};
      const CropBox whole{.left = 0, .top = 0, .width = 100, .height = 100};
      for (const std::byte value : resized<BlockResizer>(image, whole, shape))
        ASSERT_EQ(std::to_integer<int>(value), color) << side;
    }
  }
}

}  // namespace
}  // namespace stoker::image
