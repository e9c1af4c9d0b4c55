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
  EXPECT_THAT(text, HasSubstr("12.5 ms/step (12.3 ms device), on cpu\n"));
  EXPECT_THAT(text, HasSubstr("memory      RSS 118 MB (peak 120 MB)\n"));
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
              HasSubstr("; cuda:1 allocated 3.00 GB (peak 4.00 GB), reserved 5.00 GB\n"));
}

TEST(StatusText, CountsErrorsOfFeedAndCheckpoints) {
  control::TrainerStatus status = training();
  status.rollbacks = 2;
  status.eta_s = 25;
  status.feed = {.wait_ms = 0.1,
                 .ready_slots = 7,
                 .slots = 8,
                 .bad_samples = 3,
                 .reissued = 2,
                 .readers = 2,
                 .deaths = 1,
                 .hangs = 1,
                 .outside = 1,
                 .reading = 1.2,
                 .waiting = 0.4};
  status.checkpoint = {.last_step = 1200, .in_flight = true, .stall_ms = 3.5};
  std::string text = render_status(status, {});
  EXPECT_THAT(text, HasSubstr("training    step 10/20 (50 %), epoch 0, ETA 25 s\n"));
  EXPECT_THAT(text, HasSubstr(", 2 rollbacks\n"));
  EXPECT_THAT(text, HasSubstr("feed        data wait 0.10 ms/step, 7/8 batches ready, 2 workers "
                              "(1.2 reading, 0.4 waiting for a slot), 3 sample errors, "
                              "2 batches requeued, 1 worker crash (1 timeout), "
                              "1 external producer\n"));
  EXPECT_THAT(text, HasSubstr("checkpoint  step 1 200, stall 3.50 ms, saving\n"));
  EXPECT_THAT(text, HasSubstr("evaluator   not started\n"));
  status.feed.deaths = 2;
  EXPECT_THAT(render_status(status, {}), HasSubstr("2 worker crashes (1 timeout)"));
}

TEST(StatusText, OfADaemonThatDoesNotSayLeavesItOut) {
  const std::string text = render_status(training(), {});
  EXPECT_THAT(text, Not(HasSubstr("memory")));
  EXPECT_THAT(text, Not(HasSubstr("device")));
}

}  // namespace
}  // namespace stoker::ctl
