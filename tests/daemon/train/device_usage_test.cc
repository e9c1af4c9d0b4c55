// Device time and memory in the status, for the CPU and for a fake device.
#include <gmock/gmock.h>

#include "daemon/train/device_engine.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

class DeviceUsageTest : public TrainerTest {};

TEST_F(DeviceUsageTest, ReportsDeviceTimeAndMemoryInStatus) {
  auto config = small_config(8);
  config.train.gradient_accumulation_steps = 2;
  const auto log = std::make_shared<FakeQueue::Log>();
  log->use = {.allocated_bytes = 100, .reserved_bytes = 300, .peak_bytes = 200};
  auto ring = std::make_shared<ring::ShmRing*>(nullptr);
  ModelContext around;
  around.make_engine = [log, ring](StepEngine::Calls calls) -> Result<std::unique_ptr<StepEngine>> {
    const auto& layout = (*ring)->layout();
    return std::unique_ptr<StepEngine>(std::make_unique<DeviceEngine>(
        std::make_unique<FakeQueue>(log, layout.slot_bytes()),
        std::vector<std::unique_ptr<PinnedMemory>>(),
        DeviceEngineOptions{.slots = (*ring)->slots()}, std::move(calls)));
  };
  Session run(
      config, root_, [](uint64_t) { return false; }, std::move(around));
  *ring = run.ring_.get();
  ASSERT_TRUE(run.train().ok());
  const auto status = run.board_.read();
  EXPECT_EQ(status->resources[Resource::kDeviceAllocated], 100);
  EXPECT_EQ(status->resources[Resource::kDeviceReserved], 300);
  EXPECT_EQ(status->resources[Resource::kDevicePeakAllocated], 200);
  EXPECT_DOUBLE_EQ(status->device_time_ms, 2 * FakeQueue::kWorkMs)
      << "a step is two pieces of work";
}

TEST_F(DeviceUsageTest, ReportsStepTimeAsDeviceTimeOnCpu) {
  Session run(small_config(8), root_);
  ASSERT_TRUE(run.train().ok());
  const auto status = run.board_.read();
  EXPECT_GT(status->device_time_ms, 0);
  EXPECT_LE(status->device_time_ms, status->step_time_ms);
  EXPECT_TRUE(std::isnan(status->resources[Resource::kDeviceReserved]));
}

}  // namespace
}  // namespace stoker::train
