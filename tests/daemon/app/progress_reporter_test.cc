#include "daemon/app/progress_reporter.h"

#include <cmath>

#include <gtest/gtest.h>

namespace stoker::app {
namespace {

control::TrainerStatus half_way() {
  control::TrainerStatus status;
  status.state = control::TrainerState::kTraining;
  status.step = 1200;
  status.max_steps = 2000;
  status.loss = 1.40321;
  status.lr = 3e-4;
  status.samples_per_second = 812.4;
  status.feed.data_wait_ms = 0.12;
  status.eta_seconds = 67;
  status.evaluator.best_value = std::nan("");
  return status;
}

TEST(ProgressLineTest, ShowsStepLossRateAndEta) {
  EXPECT_EQ(progress_line(half_way(), 200),
            "training  step 1 200/2 000 60 %  loss 1.403  lr 0.000300  812 samples/s  data wait "
            "0.120 ms  "
            "ETA 67 s");
}

TEST(ProgressLineTest, ShowsTrainingMetricAfterLoss) {
  auto status = half_way();
  status.training_metrics = {{.name = "accuracy", .value = 0.91237}};
  EXPECT_NE(progress_line(status, 200).find("loss 1.403  accuracy 0.9124  lr 0.000300"),
            std::string::npos);
  status.training_metrics[0].value = std::nan("");
  EXPECT_EQ(progress_line(status, 200).find("accuracy"), std::string::npos);
}

TEST(ProgressLineTest, ShowsBestOfInitialState) {
  auto status = half_way();
  status.evaluator.best_value = 1.5;
  status.evaluator.best_metric = "val/loss";
  EXPECT_NE(progress_line(status, 200).find("best val/loss 1.500 @0"), std::string::npos);
}

TEST(ProgressLineTest, ShowsBestWhenKnownAndOmitsUnreportedLoss) {
  auto status = half_way();
  status.evaluator.best_value = 1.5;
  status.evaluator.best_metric = "val/loss";
  status.evaluator.best_step = 1000;
  EXPECT_NE(progress_line(status, 200).find("best val/loss 1.500 @1 000"), std::string::npos);
  status.loss = std::nan("");
  EXPECT_EQ(progress_line(status, 200).find("  loss "), std::string::npos);
}

TEST(ProgressLineTest, FitsTerminalWidth) { EXPECT_EQ(progress_line(half_way(), 40).size(), 40u); }

}  // namespace
}  // namespace stoker::app
