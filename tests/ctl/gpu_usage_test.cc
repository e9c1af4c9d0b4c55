#include "ctl/gpu_usage.h"

#include <gtest/gtest.h>

namespace stoker::ctl {
namespace {

TEST(GpuUsageTest, ReadsWhatEachGpuReports) {
  const auto usage = GpuUsage::open(STOKER_FAKE_NVML);
  ASSERT_TRUE(usage);
  const std::vector<Gpu> gpus = usage->read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].name, "Fake 0");
  EXPECT_EQ(gpus[0].load_percent, 87u);
  EXPECT_EQ(gpus[0].memory_used_bytes, 31'000'000'000u);
  EXPECT_EQ(gpus[0].memory_total_bytes, 80'000'000'000u);
  EXPECT_EQ(gpus[0].celsius, 65u);
  EXPECT_EQ(gpus[0].watts, 410.5);
  EXPECT_EQ(gpus[1].index, 1);
  EXPECT_FALSE(gpus[1].load_percent);
  EXPECT_FALSE(gpus[1].watts);
}

TEST(GpuUsageTest, IsNothingWithoutLibraryOrItsFunctions) {
  EXPECT_FALSE(GpuUsage::open("libstoker-no-such-library.so"));
  EXPECT_FALSE(GpuUsage::open("libm.so.6"));
}

}  // namespace
}  // namespace stoker::ctl
