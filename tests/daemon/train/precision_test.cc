// Precisions, the channels_last memory format, and EMA weights.
#include <cmath>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/image_config.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using testing::HasSubstr;

config::Config image_config(uint64_t steps) { return with_images(small_config(steps)); }

std::vector<std::string> files_of_newest(const Session& run) {
  std::vector<std::string> hashes;
  const auto newest = run.store_.open_newest({});
  EXPECT_TRUE(newest.ok()) << newest.status().to_string();
  if (!newest.ok()) return hashes;
  for (const auto& file : newest->manifest().files) hashes.push_back(file.name + ' ' + file.sha256);
  return hashes;
}

// An uninterrupted run and one that is stopped and resumed must have identical files in their last
// checkpoints.
void expect_resumes_bit_for_bit(const config::Config& config, const std::string& whole_root,
                                const std::string& root) {
  Session whole(config, whole_root);
  ASSERT_TRUE(whole.train().ok());
  {
    Session part(config, root);
    part.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 6) part.ask(control::Stop{});
    };
    ASSERT_TRUE(part.train().ok());
  }
  Session rest(config, root);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(files_of_newest(rest), files_of_newest(whole));
}

TEST_F(TrainerTest, ResumesFp16BitForBitWithLossScaleAndEma) {
  auto config = small_config(12);
  config.train.precision = config::Precision::kFp16;
  config.train.ema_decay = 0.9;
  expect_resumes_bit_for_bit(config, root_, fresh());
}

TEST_F(TrainerTest, ResumesChannelsLastBitForBit) {
  auto config = image_config(9);
  config.train.channels_last = true;
  config.train.ema_decay = 0.9;
  expect_resumes_bit_for_bit(config, root_, fresh());
}

TEST_F(TrainerTest, SkipsFp16StepsUntilLossScaleFitsThenLearns) {
  auto config = small_config(60);
  config.train.precision = config::Precision::kFp16;
  mlp_of(config).dropout = 0;
  Session run(config, root_);
  at::Tensor(run.state_->loss_scale()->factor()).fill_(1e9);
  const auto outcome = run.train();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_GT(run.state_->skipped_steps, 5u);
  EXPECT_LT(run.state_->skipped_steps, 40u);
  EXPECT_EQ(run.rows_.back().maybe_skipped_steps, run.state_->skipped_steps);
  EXPECT_LT(*run.rows_.back().maybe_loss_scale, 1e8);
  EXPECT_EQ(run.board_.read()->skipped_steps, run.state_->skipped_steps);
  EXPECT_TRUE(std::isnan(run.rows_.front().loss)) << "all of its steps were skipped";
  EXPECT_TRUE(std::isfinite(run.rows_.back().loss));
  EXPECT_TRUE(std::isfinite(run.rows_.back().grad_norm));
  double first = std::nan("");
  for (const auto& row : run.rows_)
    if (std::isnan(first)) first = row.loss;
  EXPECT_LT(run.rows_.back().loss, first);
}

TEST_F(TrainerTest, FailsFp16RunAtMinimumLossScale) {
  auto config = small_config(200);
  config.train.precision = config::Precision::kFp16;
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  config.train.max_nonfinite = 1000;
  Session run(config, root_, [](uint64_t) { return true; });
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(outcome.status().message(), HasSubstr("even at the minimum loss scale"));
}

TEST_F(TrainerTest, FailsFp16RunOnNanLoss) {
  auto config = small_config(50);
  config.train.precision = config::Precision::kFp16;
  Session run(config, root_, [](uint64_t) { return true; });
  const auto outcome = run.train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.status().message(), HasSubstr("is not finite at step 3"));
  EXPECT_TRUE(run.saved().empty());
}

TEST_F(TrainerTest, MatchesFp32AndStoresFp32WeightsWithReducedPrecision) {
  for (const auto precision :
       {config::Precision::kTf32, config::Precision::kBf16, config::Precision::kFp16}) {
    auto config = small_config(30);
    mlp_of(config).dropout = 0;
    Session full(config, fresh());
    ASSERT_TRUE(full.train().ok());
    config.train.precision = precision;
    Session run(config, fresh());
    ASSERT_TRUE(run.train().ok());
    EXPECT_NEAR(run.rows_.back().loss, full.rows_.back().loss, 0.05 * full.rows_.back().loss)
        << static_cast<int>(precision);
    for (const at::Tensor& parameter : run.state_->model().parameters())
      EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  }
}

TEST_F(TrainerTest, MatchesLossAndSavesContiguousWeightsWithChannelsLast) {
  Session plain(image_config(4), fresh());
  ASSERT_TRUE(plain.train().ok());
  auto config = image_config(4);
  config.train.channels_last = true;
  Session run(config, fresh());
  for (const at::Tensor& parameter : run.state_->model().parameters())
    EXPECT_TRUE(parameter.dim() != 4 || parameter.is_contiguous(at::MemoryFormat::ChannelsLast));
  ASSERT_TRUE(run.train().ok());
  // Reload into a model with the default memory format.
  const auto reread =
      *TrainingState::create(image_config(4), plain.data_->info(), c10::Device(c10::kCPU));
  ASSERT_TRUE(reread->restore(*run.store_.open_newest({})).ok());
  const auto expected = plain.state_->model().parameters();
  const auto found = reread->model().parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-3, 1e-4)) << i;
}

TEST_F(TrainerTest, SavesEmaWeightsAsSeparateModel) {
  auto config = image_config(6);
  config.train.ema_decay = 0.5;
  Session run(config, root_);
  ASSERT_TRUE(run.train().ok());
  const auto saved = *run.store_.open_newest({});
  const auto model = *saved.open_tensors("model.safetensors");
  const auto average = *saved.open_tensors("ema.safetensors");
  EXPECT_EQ(average->tensors(), model->tensors()) << "the same names, shapes and dtypes";
  const auto read = [](const auto& file, const std::string& name) {
    std::vector<float> values(file->find(name)->elements());
    EXPECT_TRUE(file->read(name, std::as_writable_bytes(std::span(values))).ok());
    return values;
  };
  EXPECT_NE(read(average, "conv1.weight"), read(model, "conv1.weight"));
  EXPECT_EQ(read(average, "bn1.running_mean"), read(model, "bn1.running_mean"));
}

TEST_F(TrainerTest, StartsEmaFromPretrainedWeights) {
  Session before(small_config(3), root_);
  ASSERT_TRUE(before.train().ok());
  auto config = small_config(3);
  config.train.ema_decay = 0.9;
  config.model.pretrained = config::PretrainedConfig{
      .path = root_ + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(3)};
  Session run(config, fresh());
  const at::Tensor random = run.state_->ema_weights()->tensors()[0].second.clone();
  pretrained::StateDictMapping mapping;
  const Status loaded = run.state_->load_pretrained(config.model, mapping);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const auto expected = run.state_->model().parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(run.state_->ema_weights()->tensors()[i].second, expected[i]));
  EXPECT_FALSE(at::equal(run.state_->ema_weights()->tensors()[0].second, random));
}

TEST_F(TrainerTest, StartsEmaFromCurrentWeightsOnResume) {
  Session before(small_config(3), root_);
  ASSERT_TRUE(before.train().ok());
  auto config = small_config(3);
  config.train.ema_decay = 0.9;
  Session run(config, root_);
  const auto expected = run.state_->model().parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(run.state_->ema_weights()->tensors()[i].second, expected[i]));
}

}  // namespace
}  // namespace stoker::train
