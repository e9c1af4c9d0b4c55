// The contents of profiles, and that instrumentation does not change the training result.
#include <thread>

#include <boost/json.hpp>
#include <gmock/gmock.h>

#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;

class StepInstrumentationTest : public TrainerTest {};

TEST_F(StepInstrumentationTest, ProfilesEachPhaseOfRequestedSteps) {
  auto config = small_config(6);
  config.checkpoint.save_every_steps = 2;
  Session run(config, root_);
  run.ask(control::Profile{.steps = 4});
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.profiles_.size(), 1u);
  const Profile& profile = run.profiles_[0].profile;
  ASSERT_EQ(profile.steps.size(), 4u);
  std::vector<uint64_t> numbers;
  size_t snapshots = 0;
  for (const ProfiledStep& step : profile.steps) {
    numbers.push_back(step.step);
    std::vector<Phase> seen;
    for (const PhaseSpan& span : step.spans) {
      EXPECT_LE(step.begin, span.begin);
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, step.end);
      if (span.phase == Phase::kSnapshot) {
        ++snapshots;
      } else {
        seen.push_back(span.phase);
      }
    }
    EXPECT_THAT(seen, ElementsAre(Phase::kDataWait, Phase::kCopy, Phase::kForward, Phase::kBackward,
                                  Phase::kOptimizer));
  }
  EXPECT_THAT(numbers, ElementsAre(1u, 2u, 3u, 4u));
  EXPECT_GE(snapshots, 1u);
  EXPECT_FALSE(run.profiles_[0].save_kernels);
}

TEST_F(StepInstrumentationTest, ProfilesMicroBatchesInSequence) {
  auto config = small_config(3);
  config.train.gradient_accumulation_steps = 2;
  Session run(config, root_);
  run.ask(control::Profile{.steps = 1});
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.profiles_.size(), 1u);
  std::vector<Phase> seen;
  for (const PhaseSpan& span : run.profiles_[0].profile.steps.at(0).spans)
    seen.push_back(span.phase);
  EXPECT_THAT(seen, ElementsAre(Phase::kDataWait, Phase::kCopy, Phase::kForward, Phase::kBackward,
                                Phase::kDataWait, Phase::kCopy, Phase::kForward, Phase::kBackward,
                                Phase::kOptimizer));
}

TEST_F(StepInstrumentationTest, ReportsStepsOfProfileAsProgress) {
  Session run(small_config(5), root_);
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  run.mailbox_.post({control::Profile{.steps = 3}, {}, [&](uint64_t done, uint64_t total) {
                       progress.emplace_back(done, total);
                     }});
  ASSERT_TRUE(run.train().ok());
  EXPECT_THAT(progress, ElementsAre(std::pair{1, 3}, std::pair{2, 3}, std::pair{3, 3}));
}

TEST_F(StepInstrumentationTest, ReturnsPartialProfileWhenRunEndsEarly) {
  Session run(small_config(3), root_);
  run.ask(control::Profile{.steps = 100});
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.profiles_.size(), 1u);
  EXPECT_EQ(run.profiles_[0].profile.steps.size(), 3u);
}

TEST_F(StepInstrumentationTest, RepliesWithErrorOnStopBeforeFirstStep) {
  Session run(small_config(3), root_);
  run.ask(control::Profile{.steps = 2});
  run.ask(control::Stop{});
  ASSERT_TRUE(run.train().ok());
  EXPECT_TRUE(run.profiles_.empty());
  ASSERT_EQ(run.replies_.size(), 2u);
  EXPECT_THAT(run.replies_[1], HasSubstr("before a step was profiled"));
}

TEST_F(StepInstrumentationTest, RejectsConcurrentProfile) {
  Session run(small_config(3), root_);
  run.ask(control::Profile{.steps = 2});
  run.ask(control::Profile{.steps = 1});
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.profiles_.size(), 1u);
  EXPECT_EQ(run.profiles_[0].profile.steps.size(), 2u);
  ASSERT_EQ(run.replies_.size(), 1u);
  EXPECT_THAT(run.replies_[0], HasSubstr("a profile is being recorded"));
}

TEST_F(StepInstrumentationTest, ExcludesPauseFromStepTimes) {
  ManualClock clock;
  Session run(slow_config(4), root_, kNoPoison, {.clock = clock});
  run.ask(control::Profile{.steps = 4});
  run.on_row = [&](const metrics::TrainMetrics& row) {
    if (row.step != 2) return;
    run.mailbox_.post({control::Pause{}, [&](const Result<std::string>&) {
                         clock.advance(std::chrono::hours(1));
                         run.ask(control::Resume{});
                       }});
  };
  ASSERT_TRUE(run.train().ok());
  ASSERT_EQ(run.profiles_.size(), 1u);
  ASSERT_EQ(run.profiles_[0].profile.steps.size(), 4u);
  EXPECT_THAT(run.replies_, ElementsAre(HasSubstr("training")));
  for (const ProfiledStep& step : run.profiles_[0].profile.steps)
    EXPECT_EQ(step.end - step.begin, std::chrono::nanoseconds(0));
}

TEST_F(StepInstrumentationTest, IncludesPhasesAndOperatorsInKernelTrace) {
  Session run(small_config(3), root_);
  run.ask(control::Profile{.steps = 2, .kernels = true});
  // Not in the thread that loaded LibTorch, as in stokerd. Kineto writes errors to standard error.
  testing::internal::CaptureStderr();
  std::jthread([&] { EXPECT_TRUE(run.train().ok()); }).join();
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("registerClient"), std::string::npos);
  ASSERT_EQ(run.profiles_.size(), 1u);
  ASSERT_TRUE(run.profiles_[0].save_kernels);
  const std::string path = root_ + "/kernels.json";
  ASSERT_TRUE(run.profiles_[0].save_kernels(path).ok());
  const json::value trace = json::parse(*read_file(path, 64 << 20));
  size_t forwards = 0, operators = 0;
  for (const auto& event : trace.at("traceEvents").as_array()) {
    const auto* const name = event.as_object().if_contains("name");
    if (name == nullptr) continue;
    if (name->as_string() == "forward") ++forwards;
    if (name->as_string().starts_with("aten::")) ++operators;
  }
  EXPECT_EQ(forwards, 2u);
  EXPECT_GT(operators, 10u);
}

TEST_F(StepInstrumentationTest, InspectsInputsOfNextBatchOnce) {
  auto config = small_config(3);
  config.train.gradient_accumulation_steps = 2;
  Session run(config, root_);
  run.ask(control::OpenInspection{.glob = "*",
                                  .steps = 1,
                                  .parameters = false,
                                  .gradients = false,
                                  .activations = false,
                                  .inputs = true});
  ASSERT_TRUE(run.train().ok());
  const json::value reply = json::parse(*run.channels_.inspections.read(1, 0));
  const json::array& records = reply.at("records").as_array();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].at("step").to_number<int>(), 1);
  EXPECT_EQ(records[0].at("ticket").to_number<int>(), 0);
  EXPECT_EQ(records[0].at("files"), json::parse(R"(["file-0"])"));
  EXPECT_EQ(records[0].at("tensors").at(0).at("name").as_string(), "input");
  EXPECT_EQ(records[0].at("tensors").at(0).at("dtype").as_string(), "F32");
  EXPECT_EQ(records[0].at("tensors").at(0).at("shape"), json::parse("[4,8]"));
}

TEST_F(StepInstrumentationTest, DoesNotChangeParameters) {
  std::string without, with;
  {
    Session run(small_config(8), fresh());
    ASSERT_TRUE(run.train().ok());
    without = run.model_sha256();
  }
  {
    Session run(small_config(8), fresh());
    run.ask(control::Profile{.steps = 5});
    ASSERT_TRUE(run.train().ok());
    with = run.model_sha256();
  }
  EXPECT_EQ(without, with);
}

}  // namespace
}  // namespace stoker::train
