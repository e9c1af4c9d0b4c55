#include "daemon/train/device.h"

#include <gmock/gmock.h>

namespace stoker::train {
namespace {

TEST(DeviceTest, RejectsFakeDeviceThatIsNotRegistered) {
  const config::DeviceConfig fake{.type = config::DeviceConfig::Type::kFake, .index = 3};
  const auto opened = open_device(fake);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(opened.status().message(),
              ::testing::AllOf(::testing::StartsWith("train.device: fake"),
                               ::testing::HasSubstr("set it to auto, cpu or cuda"),
                               ::testing::Not(::testing::HasSubstr("\n"))));
}

TEST(DeviceTest, NeedsNoModuleForCpu) {
  const config::DeviceConfig cpu{.type = config::DeviceConfig::Type::kCpu, .index = {}};
  const auto device = open_device(cpu);
  ASSERT_TRUE(device.ok());
  const auto module = module_of(cpu, *device);
  ASSERT_TRUE(module.ok());
  EXPECT_EQ(*module, nullptr);
}

}  // namespace
}  // namespace stoker::train
