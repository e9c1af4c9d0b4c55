#include "evaluator/checkpoint_evaluator.h"

#include <cstring>

#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "shared/config/load_config.h"
#include "tests/shared/checkpoint/raw_tensors.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kConfig = R"(data:
  train: {kind: synthetic, samples: 50, features: [3], classes: 2, noise: 1}
  valid: {kind: synthetic, samples: 40, features: [3], classes: 2, noise: 1}
  wider: {kind: synthetic, samples: 40, features: [4], classes: 2, noise: 1}
model: {kind: mlp, hidden: [2]}
task: {kind: classification}
eval: {sets: [valid, train], batch: 7}
)";

// Time goes on by a second with each look at it.
class TickingClock : public ManualClock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    const_cast<TickingClock*>(this)->advance(1s);
    return ManualClock::monotonic();
  }
};

class CheckpointEvaluatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<checkpoint::OwnedTensor> tensors;
    tensors.push_back(checkpoint::make_tensor("0.weight", DType::kF32, {2, 3}, 1));
    tensors.push_back(checkpoint::make_tensor("0.bias", DType::kF32, {2}, 2));
    tensors.push_back(checkpoint::make_tensor("2.weight", DType::kF32, {2, 2}, 3));
    tensors.push_back(checkpoint::make_tensor("2.bias", DType::kF32, {2}, 4));
    ASSERT_TRUE(checkpoint::write_safetensors(real_files(), scratch_.path(), "w.safetensors",
                                              checkpoint::views_of(tensors), {})
                    .ok());
  }

  Result<std::unique_ptr<CheckpointEvaluator>> create(const std::vector<std::string>& settings,
                                                      Clock& clock = system_clock()) const {
    const auto config = config::parse_config(kConfig, "test.yaml", settings);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return CheckpointEvaluator::create(*config, scratch_ / "index", clock);
  }
  Result<run::EvalResult> measure(const std::vector<std::string>& settings,
                                  Clock& clock = system_clock(), std::stop_token stop = {}) const {
    STOKER_ASSIGN_OR_RETURN(const auto evaluator, create(settings, clock));
    return evaluator->measure_file(scratch_ / "w.safetensors", std::move(stop));
  }

  const test::TemporaryDirectory scratch_;
};

TEST_F(CheckpointEvaluatorTest, EverySetHasItsMetricsInTheOrderOfTheSettings) {
  const auto result = measure({});
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  ASSERT_EQ(result->sets.size(), 2u);
  EXPECT_EQ(result->sets[0].set, "valid");
  EXPECT_EQ(result->sets[0].samples, 40u);
  EXPECT_EQ(result->sets[1].set, "train");
  EXPECT_EQ(result->sets[1].samples, 50u);
  EXPECT_EQ(result->sets[0].metrics.front().first, "loss");
  EXPECT_EQ(result->sets[0].classes.size(), 2u);
  EXPECT_EQ(result->sets[0].confusion.size(), 2u);
}

// A checkpoint whose average is one model and whose weights are another.
TEST_F(CheckpointEvaluatorTest, TheWeightsThatTheSettingsNameAreEvaluated) {
  const auto tensors = [](float first_bias) {
    std::vector<checkpoint::OwnedTensor> made;
    made.push_back(checkpoint::make_tensor("0.weight", DType::kF32, {2, 3}, 1));
    made.push_back(checkpoint::make_tensor("0.bias", DType::kF32, {2}, 2));
    made.push_back(checkpoint::make_tensor("2.weight", DType::kF32, {2, 2}, 3));
    made.push_back(checkpoint::make_tensor("2.bias", DType::kF32, {2}, 4));
    if (first_bias != 0) std::memcpy(made.back().bytes.data(), &first_bias, sizeof first_bias);
    return made;
  };
  const auto weights = tensors(2.0f), average = tensors(0.0f);  // the latter is w.safetensors
  checkpoint::CheckpointContent content;
  content.manifest.live = "{}";
  content.model = content.optim = content.state = checkpoint::views_of(weights);
  checkpoint::CheckpointStore store(scratch_ / "checkpoints", real_files());
  content.manifest.step = 1;
  ASSERT_TRUE(store.commit(content).ok());
  content.manifest.step = 2;
  content.ema = checkpoint::views_of(average);
  ASSERT_TRUE(store.commit(content).ok());
  const auto loss = [&](uint64_t step, const std::string& which) -> Result<double> {
    STOKER_ASSIGN_OR_RETURN(const auto evaluator,
                            create({"train.ema=0.9", "eval.weights=" + which}));
    STOKER_ASSIGN_OR_RETURN(const auto saved,
                            checkpoint::CheckpointStore::open_verified(scratch_ / "checkpoints" +
                                                                       "/" + store.name_of(step)));
    STOKER_ASSIGN_OR_RETURN(const auto result, evaluator->measure(saved, {}));
    return result.sets.front().metrics.front().second;
  };
  const double of_average = measure({})->sets.front().metrics.front().second;
  EXPECT_EQ(*loss(2, "ema"), of_average);
  EXPECT_NE(*loss(2, "raw"), of_average);
  EXPECT_EQ(*loss(2, "raw"), *loss(1, "raw"));
  EXPECT_EQ(loss(1, "ema").status().code(), Code::kMismatch);
  EXPECT_NE(loss(1, "ema").status().message().find("eval.weights: raw evaluates it"),
            std::string::npos);
}

TEST_F(CheckpointEvaluatorTest, NoMoreSamplesAreTakenThanTheSettingsSay) {
  EXPECT_EQ(measure({"eval.max_samples=9"})->sets[1].samples, 9u);
  EXPECT_EQ(measure({"eval.max_samples=45"})->sets[0].samples, 40u);
}

TEST_F(CheckpointEvaluatorTest, WhatTakesTooLongIsTimedOutAndSaysHowFarItWas) {
  TickingClock clock;
  const auto result = measure({"eval.timeout_seconds=3"}, clock);
  EXPECT_EQ(result.status().code(), Code::kTimedOut);
  EXPECT_NE(result.status().message().find("of 40 of valid"), std::string::npos)
      << result.status().message();
}

TEST_F(CheckpointEvaluatorTest, AStopEndsItBeforeTheNextBatch) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(measure({}, system_clock(), stop.get_token()).status().code(), Code::kCancelled);
}

TEST_F(CheckpointEvaluatorTest, SetsThatOneModelCannotTakeAreRefusedWithBothNamed) {
  const auto refused = create({"eval.sets=[valid, wider]"});
  EXPECT_EQ(refused.status().code(), Code::kMismatch);
  EXPECT_NE(refused.status().message().find("valid has input F32 [3]"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(create({"eval.sets=[]"}).status().code(), Code::kInvalidArgument);
}

TEST_F(CheckpointEvaluatorTest, WeightsOfAnotherModelAreRefusedAndTheNextAreEvaluated) {
  ASSERT_TRUE(
      checkpoint::write_safetensors(real_files(), scratch_.path(), "bad.safetensors", {}, {}).ok());
  const auto evaluator = create({});
  ASSERT_TRUE(evaluator.ok());
  const auto refused = (*evaluator)->measure_file(scratch_ / "bad.safetensors", {});
  EXPECT_EQ(refused.status().code(), Code::kMismatch);
  EXPECT_NE(refused.status().message().find("missing 0.weight"), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE((*evaluator)->measure_file(scratch_ / "w.safetensors", {}).ok());
}

}  // namespace
}  // namespace stoker::evaluator
