#include "shared/config/epochs.h"

#include <cmath>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/config_warnings.h"
#include "shared/config/live_settings.h"
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kAllInEpochs =
    kTextData +
    "scheduler: {name: step, warmup_steps: {epochs: 0.5}, step_size: {epochs: 30}}\n"
    "train: {max_epochs: 90}\n"
    "checkpoint: {save_every_steps: {epochs: 1}, keep_every_steps: {epochs: 10}}\n"
    "eval: {checkpoints: interval, every_steps: {epochs: 2}, early_stopping: {patience_steps: "
    "{epochs: 5}}}\n"
    "metrics: {log_every_steps: {epochs: 0.01}, histogram_every_steps: {epochs: 1}}\n";

// The steps that len(DataLoader) gives for 1281167 images in batches of 256 with drop_last=True, as
// torchvision's reference script for ImageNet has them: 5004 per epoch.
constexpr EpochLength kImageNet{.steps = 5004};

TEST(EpochsTest, ResolvesEachSetting) {
  Config config = valid_config(kAllInEpochs);
  EXPECT_TRUE(has_unresolved_epochs(config));
  EXPECT_THAT(find_config_warnings(config),
              ElementsAre(::testing::Field(&ConfigWarning::key, "eval.early_stopping")))
      << "there is no dataset to evaluate; others need the steps";
  resolve_epochs(config, kImageNet);
  EXPECT_FALSE(has_unresolved_epochs(config));
  EXPECT_EQ(config.train.max_steps, 90u * 5004);
  EXPECT_EQ(config.scheduler.warmup_steps, 2502u);
  EXPECT_EQ(std::get<StepScheduler>(config.scheduler.schedule).step_size, 30u * 5004);
  EXPECT_EQ(config.checkpoint.save_every_steps, 5004u);
  EXPECT_EQ(config.checkpoint.keep_every_steps, 50040u);
  EXPECT_EQ(config.eval.every_steps, 10008u);
  EXPECT_EQ(config.eval.early_stopping.patience_steps, 25020u);
  EXPECT_EQ(config.metrics.log_every_steps, 51u) << "50.04 steps, rounded up";
  EXPECT_EQ(config.metrics.histogram_every_steps, 5004u);
  EXPECT_THAT(describe_epochs(config),
              AllOf(HasSubstr("train.max_steps=450360"),
                    HasSubstr("eval.early_stopping.patience_steps=25020")));
}

TEST(EpochsTest, RoundsUpToWholeSteps) {
  Config config = valid_config(kTextData +
                               "train: {max_epochs: 0.7}\n"
                               "scheduler: {warmup_steps: {epochs: 0}}\n"
                               "checkpoint: {save_every_steps: {epochs: 1.0e-9}}\n");
  resolve_epochs(config, {.steps = 10});
  EXPECT_EQ(config.train.max_steps, 7u) << "0.7 * 10 is above 7 by a rounding";
  EXPECT_EQ(config.scheduler.warmup_steps, 0u);
  EXPECT_EQ(config.checkpoint.save_every_steps, 1u);
  resolve_epochs(config, {.steps = 468.75});
  EXPECT_EQ(config.train.max_steps, 329u) << "328.125";
}

// A run of 10 epochs of 60000 samples that continues after 4 of them with batches of 32 instead of 64.
TEST(EpochsTest, EndsAfterSameEpochsWithAnotherBatchSize) {
  Config config = valid_config(kTextData + "train: {max_epochs: 10}\n");
  resolve_epochs(config, {.steps = 60000 / 64.0});
  EXPECT_EQ(config.train.max_steps, 9375u);
  resolve_epochs(config, {.steps = 60000 / 32.0, .step = 3750, .epochs = 4});
  EXPECT_EQ(config.train.max_steps, 3750u + 6 * 1875);
  resolve_epochs(config, {.steps = 60000 / 32.0, .step = 20000, .epochs = 11});
  EXPECT_EQ(config.train.max_steps, 20000u) << "there is nothing left to do";
}

// From each step at which a run can continue.
TEST(EpochsTest, EndAtSameStepFromEachStep) {
  Config config = valid_config(kTextData + "train: {max_epochs: 90}\n");
  for (const double steps : {469.0, 937.5, 5004.0 / 7}) {
    const auto end = static_cast<uint64_t>(std::ceil(90 * steps - 1e-6));
    constexpr uint64_t kNear = 100, kStride = 97;  // of the end; elsewhere
    for (uint64_t step = 0; step <= end; step += step + kNear < end ? kStride : 1) {
      resolve_epochs(config,
                     {.steps = steps, .step = step, .epochs = static_cast<double>(step) / steps});
      ASSERT_EQ(config.train.max_steps, end) << step << " of " << steps;
      ASSERT_EQ(schedule_step(config, step), step);
    }
  }
}

// After 4 epochs of 10 steps, epochs have 20.
TEST(EpochsTest, UnfreezesAfterSameEpochsWithAnotherLength) {
  const std::string text =
      kImageData + "model: {name: mlp, freeze: [\"0.*\"], unfreeze_at_step: {epochs: ";
  for (const auto& [epochs, step] : {std::pair{3, 20u}, {6, 80u}}) {
    Config config = valid_config(text + std::to_string(epochs) + "}}\n");
    resolve_epochs(config, {.steps = 20, .step = 40, .epochs = 4});
    EXPECT_EQ(config.model.unfreeze_at_step, step) << epochs;
  }
}

TEST(EpochsTest, AreWrittenWithTheirSteps) {
  Config config = valid_config(kAllInEpochs);
  EXPECT_THAT(to_yaml(config), AllOf(HasSubstr("\n  max_steps: {epochs: 90}\n  max_epochs: 90\n"),
                                     HasSubstr("\n  warmup_steps: {epochs: 0.5}\n")));
  EXPECT_EQ(valid_config(to_yaml(config)), config);
  resolve_epochs(config, kImageNet);
  const std::string text = to_yaml(config);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\n  max_steps: {epochs: 90, steps: 450360}\n  max_epochs: 90\n"),
                    HasSubstr("\n    patience_steps: {epochs: 5, steps: 25020}\n")));
  Config read = valid_config(text);
  EXPECT_FALSE(has_unresolved_epochs(read)) << "for programs that do not read the data";
  EXPECT_EQ(read.eval.every_steps, 10008u);
  read.epoch_length = config.epoch_length;
  EXPECT_EQ(read, config);
}

TEST(EpochsTest, OnlyTheirNumberIsCompared) {
  Config small = valid_config(kAllInEpochs), large = small;
  resolve_epochs(small, {.steps = 10});
  resolve_epochs(large, {.steps = 1000});
  EXPECT_THAT(diff_configs(small, large), IsEmpty());
  EXPECT_EQ(digest(small), digest(large));
  const Config other = valid_config(kAllInEpochs, {"train.max_epochs=100"});
  EXPECT_NE(digest(small), digest(other));
  const auto changes = diff_configs(small, other);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(
      changes.front().key + ": " + changes.front().previous + " -> " + changes.front().current,
      "train.max_steps: {epochs: 90} -> {epochs: 100}");
}

TEST(EpochsTest, MaxEpochsIsShortForMaxSteps) {
  EXPECT_EQ(valid_config(kTextData + "train: {max_epochs: 3}\n"),
            valid_config(kTextData + "train: {max_steps: {epochs: 3}}\n"));
  const std::string both = kTextData + "train: {max_epochs: 3, max_steps: 100}\n";
  EXPECT_THAT(errors_of(both),
              ElementsAre("my.yaml:2:21: train.max_epochs: cannot be combined with "
                          "train.max_steps; remove one of them"));
  EXPECT_THAT(errors_of(kTextData, {"train.max_epochs=3", "train.max_steps=100"}),
              ElementsAre(HasSubstr("cannot be combined with train.max_steps")));
}

TEST(EpochsTest, CommandLineOverridesOtherFormOfFile) {
  const std::string epochs = kTextData + "train: {max_epochs: 3}\n",
                    steps = kTextData + "train: {max_steps: 100}\n";
  const Config few = valid_config(epochs, {"train.max_steps=5"});
  EXPECT_EQ(few.train.max_steps, 5u);
  EXPECT_EQ(few.train.max_epochs, std::nullopt);
  EXPECT_THAT(few.epochs, IsEmpty());
  Config many = valid_config(steps, {"train.max_epochs=7"});
  resolve_epochs(many, {.steps = 10});
  EXPECT_EQ(many.train.max_steps, 70u);
}

TEST(EpochsTest, RejectOtherMappings) {
  const auto error = [](const std::string& value) {
    const auto errors = errors_of(kTextData + "train: {max_steps: " + value + "}\n");
    return errors.size() == 1 ? errors.front() : std::to_string(errors.size()) + " errors";
  };
  EXPECT_EQ(error("{}"),
            "my.yaml:2:20: train.max_steps: must have the key epochs, as in {epochs: 1.5}");
  EXPECT_EQ(
      error("{epoch: 2}"),
      "my.yaml:2:21: train.max_steps: unknown key 'epoch'; a number of epochs is {epochs: 1.5}");
  EXPECT_EQ(error("{epochs: 0}"),
            "my.yaml:2:29: train.max_steps.epochs: must be a number above 0 and at most "
            "1000000000, got '0'");
  EXPECT_EQ(error("{epochs: many}"),
            "my.yaml:2:29: train.max_steps.epochs: must be a number above 0 and at most "
            "1000000000, got 'many'");
  EXPECT_EQ(error("{epochs: 2, steps: -1}"),
            "my.yaml:2:39: train.max_steps.steps: must be an integer "
            "from 0 to 1000000000000000, got '-1'");
  EXPECT_THAT(errors_of(kTextData + "scheduler: {name: multi_step, milestones: {epochs: []}}\n"),
              ElementsAre(HasSubstr("scheduler.milestones: must not be empty")));
  EXPECT_THAT(errors_of(kTextData + "train: {micro_batch_size: {epochs: 1}}\n"),
              ElementsAre(HasSubstr("must be an integer from 1 to 1000000, got a mapping")));
}

TEST(EpochsTest, RejectStreams) {
  const std::string stream =
      "data: {train: {format: jsonl, fields: {input: x, label: y}, input_shape: [1], num_classes: "
      "2, stream: {source: "
      "stdin}}}\nmodel: {name: mlp}\ntask: {name: classification}\n";
  ASSERT_THAT(errors_of(stream + "train: {max_steps: 5}\n"), IsEmpty());
  EXPECT_THAT(
      errors_of(stream + "train: {max_epochs: 5}\n"),
      ElementsAre(
          "my.yaml:4:21: train.max_epochs: cannot be combined with data.train.stream, which has no "
          "epochs; set a number of steps"));
  EXPECT_THAT(
      errors_of(stream + "train: {max_steps: 5}\ncheckpoint: {save_every_steps: {epochs: 1}}\n"),
      ElementsAre(
          HasSubstr("checkpoint.save_every_steps: cannot be combined with data.train.stream")));
}

TEST(EpochsTest, ChangeDuringRun) {
  Config configured = valid_config(kAllInEpochs);
  resolve_epochs(configured, {.steps = 10, .step = 100, .epochs = 10});
  const auto longer = set_live(configured, {}, "train.max_epochs", "100");
  ASSERT_TRUE(longer.ok()) << longer.status().message();
  EXPECT_EQ(longer->config.train.max_steps, 1000u);
  const auto often =
      set_live(configured, longer->live, "checkpoint.save_every_steps", "{epochs: 0.5}");
  ASSERT_TRUE(often.ok()) << often.status().message();
  EXPECT_EQ(often->config.checkpoint.save_every_steps, 5u);
  EXPECT_EQ(often->live.back().value, "{epochs: 0.5}");
  EXPECT_EQ(often->config.train.max_steps, 1000u);
  const auto shorter = set_live(configured, {}, "train.max_steps", "123");
  ASSERT_TRUE(shorter.ok()) << shorter.status().message();
  EXPECT_EQ(shorter->config.train.max_steps, 123u);
  EXPECT_EQ(shorter->config.train.max_epochs, std::nullopt);
  // The later form applies.
  const auto again = set_live(configured, shorter->live, "train.max_epochs", "50");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->config.train.max_steps, 500u);
  EXPECT_EQ(again->live.size(), 1u);
  EXPECT_THAT(set_live(configured, {}, "train.max_epochs", "null").status().message(),
              HasSubstr("cannot be null with train.max_steps in epochs"));
  // With data of another length, the settings are still those of the configuration.
  Config grown = configured;
  resolve_epochs(grown, {.steps = 20, .step = 100, .epochs = 10});
  EXPECT_THAT(resume_live(grown, often->live).dropped, IsEmpty());
}

TEST(EpochsTest, TakesStepsOfRunWithSameEpochs) {
  Config run = valid_config(kAllInEpochs);
  resolve_epochs(run, kImageNet);
  Config config = valid_config(kAllInEpochs, {"train.max_epochs=100"});
  keep_resolved_epochs(config, run);
  EXPECT_EQ(config.train.max_steps, 0u) << "other epochs";
  EXPECT_EQ(config.checkpoint.keep_every_steps, 50040u);
}

TEST(EpochsTest, AreShownAsConfigured) {
  Config config = valid_config(kAllInEpochs);
  resolve_epochs(config, kImageNet);
  EXPECT_EQ(*value_of(config, "train.max_steps"), "{epochs: 90}");
  EXPECT_EQ(*value_of(config, "train.max_epochs"), "90");
}

}  // namespace
}  // namespace stoker::config::test
