#include "shared/image/resample_kernel.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::image {
namespace {

class ResampleKernelSizeTest : public ::testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

TEST_P(ResampleKernelSizeTest, OrdersWindowsInsideInputWithUnitWeight) {
  const auto [inputs, outputs] = GetParam();
  ResampleKernel kernel;
  kernel.prepare(inputs, outputs);

  ASSERT_EQ(kernel.outputs(), outputs);
  uint32_t first = 0, end = 0;
  for (uint32_t output = 0; output < outputs; ++output) {
    const auto& window = kernel.window(output);
    ASSERT_GE(window.count, 1u);
    ASSERT_GE(window.first, first);
    ASSERT_GE(window.end(), end);
    ASSERT_LE(window.end(), inputs);
    first = window.first, end = window.end();
    int64_t sum = 0;
    for (uint32_t i = 0; i < window.count; ++i) sum += kernel.weights(window)[i];
    EXPECT_LE(std::abs(sum - (int64_t{1} << ResampleKernel::kShift)), window.count);
  }
}

TEST_P(ResampleKernelSizeTest, ReportsMaximumOverlapOfWindows) {
  const auto [inputs, outputs] = GetParam();
  ResampleKernel kernel;
  kernel.prepare(inputs, outputs);

  std::vector<uint32_t> windows(inputs);
  for (uint32_t output = 0; output < outputs; ++output)
    for (uint32_t i = kernel.window(output).first; i < kernel.window(output).end(); ++i)
      ++windows[i];

  EXPECT_EQ(kernel.overlap(), *std::max_element(windows.begin(), windows.end()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ResampleKernelSizeTest,
                         ::testing::Values(std::pair{1u, 1u}, std::pair{1u, 7u}, std::pair{7u, 1u},
                                           std::pair{2u, 3u}, std::pair{500u, 224u},
                                           std::pair{224u, 224u}, std::pair{100u, 224u},
                                           std::pair{223u, 224u}, std::pair{65535u, 16u},
                                           std::pair{16u, 16384u}));

TEST(ResampleKernelTest, PreservesPixelsWithoutResize) {
  ResampleKernel kernel;
  kernel.prepare(5, 5);
  for (uint32_t output = 0; output < 5; ++output) {
    EXPECT_EQ(kernel.window(output).first, output);
    EXPECT_EQ(kernel.weights(kernel.window(output))[0], 1 << ResampleKernel::kShift);
  }
}

TEST(ResampleKernelTest, ReplacesWindowsOnSecondPrepare) {
  ResampleKernel kernel, fresh;
  kernel.prepare(1000, 10);
  kernel.prepare(20, 10);
  fresh.prepare(20, 10);
  for (uint32_t output = 0; output < 10; ++output) {
    ASSERT_EQ(kernel.window(output).first, fresh.window(output).first);
    ASSERT_EQ(kernel.window(output).count, fresh.window(output).count);
    for (uint32_t i = 0; i < fresh.window(output).count; ++i)
      EXPECT_EQ(kernel.weights(kernel.window(output))[i], fresh.weights(fresh.window(output))[i]);
  }
}

}  // namespace
}  // namespace stoker::image
