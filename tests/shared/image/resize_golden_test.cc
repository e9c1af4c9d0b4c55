// The resize against Pillow 13.0: SHA-256 of the planes of
//   Image.fromarray(pattern(23, 37)).convert(mode).resize((width, height), Image.BILINEAR)
// For 8-bit pictures the two agree to the last bit, but for the order of the passes: Pillow 13
// begins with the height when only the height shrinks, which moves some values by one (the last
// test).
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/sha256.h"
#include "shared/image/decoder.h"
#include "tests/shared/image/picture_files.h"

namespace stoker::image {
namespace {

struct Golden {
  uint32_t channels, height, width;
  const char* sha256;
};

class ResizeGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(ResizeGolden, AgreesWithPillow) {
  const Golden& golden = GetParam();
  const PictureShape shape{
      .channels = golden.channels, .height = golden.height, .width = golden.width};
  std::vector<std::byte> planes(shape.bytes());

  Decoder decoder;
  const std::string file = testing::png_of(testing::pattern(23, 37));
  ASSERT_TRUE(decoder.decode(testing::bytes_of(file), shape, planes).ok());

  const std::string_view text(reinterpret_cast<const char*>(planes.data()), planes.size());
  EXPECT_EQ(sha256_hex(text), golden.sha256);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ResizeGolden,
    ::testing::Values(
        Golden{3, 9, 16, "79a29c730393593b8b9699268b17803bb67479f799f3fe2a7f750772257bb604"},
        Golden{3, 48, 64, "efd0f0198cfc8cdafe043262d696f1f9cb49f7ca35b547905ab189d4070d74f9"},
        Golden{3, 40, 5, "58a2d0e96f3e7af2ceb1e0f208ed5cd1dbe8f422da42601e8a7baaa641b4ce2c"},
        Golden{3, 80, 5, "ed054d3ad83fb387978b01f9ba7e846fe271a72f11f2d1f203967c700cf52b80"},
        Golden{3, 23, 37, "156dc619f1d9d5094281c922cd51b64373bd08926cfe75c6a5f544e965a1f2ef"},
        Golden{3, 1, 1, "57552e6d066be5c92969f019cdd30f00304d487b39a8af6edd8728f1e0f08027"},
        Golden{1, 9, 16, "c9392448ad5be657abbb261723ae9abcecb4e97965a9a0d582989af48e8d91e7"},
        Golden{1, 48, 64, "6547b84416ecee72aed351cdd470a514fd208781ef80a485bf841395a027fe63"},
        Golden{1, 40, 5, "57b9d2fff98c070e4302efa9e0975b6be05b382a36a9c87a3cfcead1fb994049"},
        Golden{1, 23, 37, "614a73229a1cbe716c8af1c605dfd29fe6e4604ebcd1c5b466447c7b995088c6"},
        Golden{1, 1, 1, "620bfdaa346b088fb49998d92f19a7eaf6bfc2fb0aee015753966da1028cb731"}));

// One of them as numbers, to see what went wrong when the sums above differ.
TEST(ResizeGoldenNumbers, AgreeWithPillow) {
  const std::array<uint8_t, 36> golden{121, 137, 109, 110, 121, 108, 125, 143, 110, 139, 148, 121,
                                       134, 121, 114, 125, 117, 120, 146, 142, 133, 150, 122, 96,
                                       129, 108, 135, 148, 117, 145, 145, 122, 155, 136, 105, 119};
  const PictureShape shape{.channels = 3, .height = 3, .width = 4};
  std::vector<std::byte> planes(shape.bytes());

  Decoder decoder;
  const std::string file = testing::png_of(testing::pattern(23, 37));
  ASSERT_TRUE(decoder.decode(testing::bytes_of(file), shape, planes).ok());

  for (size_t i = 0; i < golden.size(); ++i)
    EXPECT_EQ(std::to_integer<int>(planes[i]), golden[i]) << i;
}

TEST(ResizeGoldenNumbers, AgreeWithinOneLevelWhenOnlyTheHeightShrinks) {
  // The green plane.
  const std::array<uint8_t, 80> golden{
      131, 140, 135, 131, 137, 129, 122, 127, 123, 115, 125, 124, 120, 104, 114, 124,
      109, 127, 127, 115, 111, 110, 109, 117, 119, 133, 129, 132, 125, 149, 131, 156,
      179, 138, 105, 123, 126, 124, 137, 131, 114, 125, 101, 119, 127, 122, 126, 129,
      128, 137, 138, 133, 139, 142, 132, 154, 150, 151, 143, 141, 139, 135, 138, 145,
      138, 140, 144, 132, 132, 126, 67,  107, 111, 115, 135, 112, 102, 109, 103, 105};
  const PictureShape shape{.channels = 3, .height = 2, .width = 40};
  std::vector<std::byte> planes(shape.bytes());

  Decoder decoder;
  const std::string file = testing::png_of(testing::pattern(23, 37));
  ASSERT_TRUE(decoder.decode(testing::bytes_of(file), shape, planes).ok());

  for (size_t i = 0; i < golden.size(); ++i)
    EXPECT_NEAR(std::to_integer<int>(planes[golden.size() + i]), golden[i], 1) << i;
}

}  // namespace
}  // namespace stoker::image
