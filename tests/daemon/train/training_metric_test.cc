// The training metric in reports, status and checkpoints.
#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "daemon/train/device_engine.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

class TrainerMetricTest : public TrainerTest {
 protected:
  std::vector<metrics::TrainMetrics> rows_of(const config::Config& config,
                                             ModelContext around = {}) {
    Session run(config, fresh(), kNoPoison, std::move(around));
    EXPECT_TRUE(run.train().ok());
    return run.rows_;
  }
};

config::Config without_dropout(uint64_t steps) {
  auto config = small_config(steps);
  mlp_of(config).dropout = 0;
  return config;
}

TEST_F(TrainerMetricTest, AveragesOverStepsSinceLastReport) {
  auto config = without_dropout(6);
  const auto rows = rows_of(config);
  config.metrics.log_every_steps = 1;
  const auto each = rows_of(config);
  ASSERT_EQ(rows.size(), 2u);
  ASSERT_EQ(each.size(), 6u);
  for (size_t row = 0; row < 2; ++row) {
    double sum = 0, loss = 0;
    for (size_t i = 3 * row; i < 3 * row + 3; ++i) {
      sum += each[i].metrics[0].second;
      loss += each[i].loss;
    }
    EXPECT_EQ(rows[row].metrics[0].first, "mae");
    EXPECT_GT(sum, 0);
    EXPECT_NEAR(rows[row].metrics[0].second, sum / 3, 1e-9);
    EXPECT_NEAR(rows[row].loss, loss / 3, 1e-9);
  }
}

TEST_F(TrainerMetricTest, AveragesOverMicroBatches) {
  auto config = without_dropout(6);
  const auto whole = rows_of(config);
  config.train.micro_batch_size = 2;
  config.train.gradient_accumulation_steps = 2;
  const auto parts = rows_of(config);
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < parts.size(); ++i)
    EXPECT_NEAR(parts[i].metrics[0].second, whole[i].metrics[0].second, 1e-4);
}

TEST_F(TrainerMetricTest, ReportsAccuracyOfClassificationInStatus) {
  auto config = without_dropout(60);
  synthetic_of(config).num_classes = 3;
  config.task.task = config::ClassificationTask{};
  config.optimizer.set_lr(0.05);
  Session run(config, root_);
  ASSERT_TRUE(run.train().ok());
  const auto& last = run.rows_.back().metrics[0];
  EXPECT_EQ(last.first, "accuracy");
  EXPECT_GE(last.second, run.rows_.front().metrics[0].second);
  EXPECT_LE(last.second, 1);
  EXPECT_EQ(run.board_.read()->training_metrics[0].name, "accuracy");
  EXPECT_EQ(run.board_.read()->training_metrics[0].value, last.second);
}

TEST_F(TrainerMetricTest, ReadsTheSameValueFromDeviceLater) {
  auto config = small_config(12);
  config.train.gradient_accumulation_steps = 2;
  const auto log = std::make_shared<FakeQueue::Log>();
  log->reads_are_slow = true;
  const ring::BatchLayout layout({{"input", DType::kF32, {8}}, {"target", DType::kF32, {2}}}, 4);
  ModelContext around;
  around.make_engine = [&](StepEngine::Calls calls) -> Result<std::unique_ptr<StepEngine>> {
    return std::unique_ptr<StepEngine>(
        std::make_unique<DeviceEngine>(std::make_unique<FakeQueue>(log, layout.slot_bytes()),
                                       std::vector<std::unique_ptr<PinnedMemory>>(),
                                       DeviceEngineOptions{.slots = 2}, std::move(calls)));
  };
  const auto late = rows_of(config, std::move(around));
  const auto expected = rows_of(config);
  EXPECT_GT(log->replays, 0);
  ASSERT_EQ(late.size(), expected.size());
  for (size_t i = 0; i < late.size(); ++i)
    EXPECT_EQ(late[i].metrics, expected[i].metrics) << late[i].step;
}

class FixedMetric final : public task::Task {
 public:
  explicit FixedMetric(at::Tensor sum) : sum_(std::move(sum)) {}
  task::LossAndMetric loss_and_metric(model::Model& model,
                                      const task::Batch& batch) const override {
    return {.loss = model.forward(batch[0]).mean(), .metric_sum = sum_, .metric_count = 4};
  }
  std::unique_ptr<task::Evaluation> start_evaluation(
      const task::EvaluationOptions&) const override {
    return nullptr;
  }

 private:
  const at::Tensor sum_;
};

TEST_F(TrainerMetricTest, CopiesNoMetricOfSingleMicroBatch) {
  auto config = without_dropout(6);
  Session run(config, root_);
  const at::Tensor sum = at::full({}, 3, at::kLong);
  const FixedMetric task(sum);
  TrainStep single(run.state_->model(), task, run.state_->optimizer(), config.train);
  single.add({at::zeros({4, 8})});
  EXPECT_TRUE(single.metric_sum().is_same(sum));
  EXPECT_EQ(single.metric_count(), 4);
  config.train.gradient_accumulation_steps = 2;
  TrainStep step(run.state_->model(), task, run.state_->optimizer(), config.train);
  for (const bool is_first : {true, false, true, false}) step.add({at::zeros({4, 8})}, is_first);
  EXPECT_EQ(step.metric_sum().item<double>(), 6);
  EXPECT_EQ(step.metric_count(), 8);
}

TEST_F(TrainerMetricTest, ExcludesSkippedSteps) {
  auto config = small_config(16);
  config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
  Session run(config, root_, [](uint64_t sample) { return sample == 5; });
  ASSERT_TRUE(run.train().ok());
  EXPECT_EQ(run.state_->skipped_steps, 1u);
  for (const metrics::TrainMetrics& row : run.rows_)
    EXPECT_TRUE(std::isfinite(row.metrics[0].second)) << row.step;
}

}  // namespace
}  // namespace stoker::train
