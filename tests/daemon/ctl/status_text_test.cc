#include "daemon/ctl/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

control::TrainerStatus training() {
  control::TrainerStatus status;
  status.state = control::TrainerState::kTraining;
  status.step = 10;
  status.steps = 20;
  status.samples_per_s = 100;
  status.step_ms = 12.5;
  status.device = "cpu";
  return status;
}

TEST(StatusText, SaysWhatOfAStepIsComputingAndWhatMemoryThereIs) {
  control::TrainerStatus status = training();
  status.device_ms = 12.3;
  status.memory.resident_bytes = 118'000'000;
  status.memory.resident_peak_bytes = 120'000'000;
  const std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("12.5 ms a step, 12.3 of them computing, on cpu\n"));
  EXPECT_THAT(text, HasSubstr("memory      118 MB resident, 120 MB at most\n"));
}

TEST(StatusText, SaysOfAGpuWhatTensorsHaveAndWhatIsReserved) {
  control::TrainerStatus status = training();
  status.device = "cuda:1";
  status.memory = {.resident_bytes = 1'000'000'000,
                   .resident_peak_bytes = 2'000'000'000,
                   .device_bytes = 3'000'000'000,
                   .device_reserved_bytes = 5'000'000'000,
                   .device_peak_bytes = 4'000'000'000};
  EXPECT_THAT(render_status(status, {}),
              HasSubstr("; on cuda:1 3.00 GB in tensors, 4.00 GB at most, 5.00 GB reserved\n"));
}

TEST(StatusText, OfADaemonThatDoesNotSayLeavesItOut) {
  const std::string text = render_status(training(), {});
  EXPECT_THAT(text, Not(HasSubstr("memory")));
  EXPECT_THAT(text, Not(HasSubstr("computing")));
}

}  // namespace
}  // namespace stoker::ctl
