// The numbers of reductions of ReduceLROnPlateau of PyTorch 2.11, for values that an evaluator has recorded
// (tests/parity/make_recipe_numbers.py).
#include "daemon/app/evaluated_reductions.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_outcomes.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

const std::vector<double> kValues{1, 0.9, 0.91, 0.8995, 0.95, 0.7, 0.71, 0.72, 0.705, 0.6999, 0.8};

class EvaluatedReductionsTest : public testing::Test {
 protected:
  EvaluatedReductionsTest() {
    std::filesystem::create_directories(layout_.eval_dir());
    std::filesystem::create_directories(layout_.metrics_dir());
    std::ofstream(layout_.metric_table_file())
        << R"({"metrics": [{"name": "loss", "direction": "minimize"},)"
        << R"({"name": "accuracy", "direction": "maximize"}]})";
    config_.eval.datasets = {"val"};
  }
  void monitor(const std::string& metric, config::ReduceOnPlateauScheduler plateau) {
    plateau.monitor = config::PlateauMonitor::kEval;
    config_.scheduler.schedule = plateau;
    config_.eval.monitor = metric;
  }
  void evaluate(uint64_t step, double value) {
    const std::string manifest = "manifest-" + std::to_string(step);
    const run::DatasetResult result{
        .dataset = "val", .samples = 1, .metrics = {{"loss", value}, {"accuracy", value}}};
    ASSERT_TRUE(
        run::write_eval_result(default_file_system(), layout_.eval_dir(),
                               {.step = step, .manifest_sha256 = manifest, .datasets = {result}})
            .ok());
    std::ofstream(layout_.evaluation_outcomes_file(), std::ios::app) << run::to_json_line(
        {.step = step, .manifest_sha256 = manifest}, "2026-01-31T12:00:00.000Z");
  }
  // After each of the values.
  std::vector<uint64_t> counts() {
    EvaluatedReductions reductions(config_, layout_);
    std::vector<uint64_t> found;
    for (size_t i = 0; i < kValues.size(); ++i) {
      evaluate(100 * (i + 1), kValues[i]);
      found.push_back(reductions.count(0.5));
    }
    return found;
  }

  const test::TemporaryDirectory folder_;
  const run::RunLayout layout_{folder_.path()};
  config::Config config_;
};

TEST_F(EvaluatedReductionsTest, CountsAsPyTorchWithSmallerValuesBetter) {
  monitor("loss", {.patience = 2});
  EXPECT_EQ(counts(), (std::vector<uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST_F(EvaluatedReductionsTest, CountsAsPyTorchWithLargerValuesBetter) {
  monitor("val/accuracy", {.factor = 0.5, .patience = 1});
  EXPECT_EQ(counts(), (std::vector<uint64_t>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5}));
  EXPECT_EQ(EvaluatedReductions(config_, layout_).count(0.5), 5u) << "after a restart";
}

TEST_F(EvaluatedReductionsTest, StopsAtMinLr) {
  monitor("loss", {.patience = 0, .min_lr = 0.1});
  EXPECT_EQ(counts().back(), 1u);
}

// 0.5, 0.1; 5, 0.5, 0.1
TEST_F(EvaluatedReductionsTest, StopsAtMinLrOfLearningRateInEffect) {
  monitor("loss", {.patience = 0, .min_lr = 0.1});
  EvaluatedReductions reductions(config_, layout_);
  for (uint64_t step = 1; step < 5; ++step) evaluate(step, 1);
  EXPECT_EQ(reductions.count(0.5), 1u);
  EXPECT_EQ(reductions.count(5), 2u);
}

TEST_F(EvaluatedReductionsTest, TakesResultThatIsReplaced) {
  monitor("loss", {.patience = 0});
  EvaluatedReductions reductions(config_, layout_);
  evaluate(1, 1);
  evaluate(2, 1);
  EXPECT_EQ(reductions.count(0.5), 1u);
  evaluate(2, 0.5);  // evaluated again
  EXPECT_EQ(reductions.count(0.5), 0u);
  std::filesystem::remove(run::eval_result_path(layout_.eval_dir(), 1));
  evaluate(3, 0.5);
  EXPECT_EQ(reductions.count(0.5), 1u);
}

TEST_F(EvaluatedReductionsTest, IsOfStepsNotOfTheirOrder) {
  monitor("loss", {.patience = 0});
  EvaluatedReductions reductions(config_, layout_);
  evaluate(30, 0.7);
  evaluate(10, 0.9);
  evaluate(20, 0.8);
  EXPECT_EQ(reductions.count(0.5), 0u) << "the newest checkpoint was evaluated first";
}

TEST_F(EvaluatedReductionsTest, IsZeroWithOtherSchedulers) {
  for (uint64_t step = 1; step < 5; ++step) evaluate(step, 1);
  config_.scheduler.schedule = config::CosineScheduler{};
  EXPECT_EQ(EvaluatedReductions(config_, layout_).count(0.5), 0u);
  config_.scheduler.schedule = config::ReduceOnPlateauScheduler{.patience = 0};
  EXPECT_EQ(EvaluatedReductions(config_, layout_).count(0.5), 0u) << "monitor train_loss";
}

}  // namespace
}  // namespace stoker::app
