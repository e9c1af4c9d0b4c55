// What a CUDA module cannot do on a machine is logged, and LibTorch does it in another way. In a separate program, which
// finds a stub of the module.
#include <ATen/Context.h>
#include <gmock/gmock.h>

#include "daemon/train/device.h"
#include "shared/model/fused_kernels.h"
#include "tests/support/logged_text.h"

namespace stoker::train {
namespace {

using testing::HasSubstr;

constexpr config::DeviceConfig kCuda{.type = config::DeviceConfig::Type::kCuda, .index = {}};

TEST(DeviceModuleTest, DisablesCudnnAttentionWithoutNvrtc) {
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP());
  const std::string logged = test::log_of([] {
    const auto device = open_device(kCuda);
    ASSERT_TRUE(device.ok()) << device.status().to_string();
    EXPECT_EQ(device->str(), "cuda:0");
  });
  EXPECT_FALSE(at::globalContext().userEnabledCuDNNSDP());
  EXPECT_THAT(logged, HasSubstr("cudnn attention disabled"));
  EXPECT_THAT(logged, HasSubstr("no NVRTC on this machine"));
}

TEST(DeviceModuleTest, UsesKernelsOfLibTorchIfBuildHasNoFusedOnes) {
  const c10::Device device(c10::kCUDA, 0);
  // Those of an earlier selection.
  model::use_fused_kernels(c10::kCUDA, {.rope = [](const model::RopeRotation&) {}});
  config::TrainConfig config{.device = kCuda};
  config.fused_kernels.rope = true;
  const std::string logged = test::log_of([&] { select_fused_kernels(config, device); });
  EXPECT_EQ(model::fused_kernels(device).rope, nullptr);
  EXPECT_THAT(logged, HasSubstr("fused kernels unavailable"));
  EXPECT_THAT(logged, HasSubstr("this build has none; install nvcc (scripts/deps.sh --nvcc)"));
}

}  // namespace
}  // namespace stoker::train
