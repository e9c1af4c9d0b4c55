#include "shared/run/early_stopping.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::run {
namespace {

std::vector<MonitorValue> every_100(const std::vector<double>& values) {
  std::vector<MonitorValue> points;
  for (const double value : values) points.push_back({100 * (points.size() + 1), value});
  return points;
}

const eval_metrics::MetricTable kTable({{.name = "loss"},
                                        {.name = "accuracy",
                                         .direction = eval_metrics::Direction::kMaximize},
                                        {.name = "perplexity"}});
const Monitor kAccuracy{"val", "accuracy", eval_metrics::Direction::kMaximize};

EarlyStopping patient(uint64_t patience) {
  return {.monitor = {"val", "loss"}, .patience = patience};
}

TEST(EarlyStoppingTest, IsDisabledByDefault) {
  EXPECT_FALSE(make_early_stopping({}, kTable)->is_on());
  EXPECT_FALSE(EarlyStopping{}.stop_reason(every_100({1, 2, 3, 4, 5, 6, 7, 8})));
}

TEST(EarlyStoppingTest, StopsAfterPatienceEvaluationsWithoutImprovement) {
  EXPECT_FALSE(patient(3).stop_reason(every_100({3, 2, 2.5, 2.4})));
  const auto reason = patient(3).stop_reason(every_100({3, 2, 2.5, 2.4, 2.1}));
  ASSERT_TRUE(reason);
  EXPECT_EQ(*reason,
            "val/loss has not become better than 2 of step 200 in 3 evaluations up to step 500");
}

TEST(EarlyStoppingTest, ResetsPatienceOnImprovement) {
  EXPECT_FALSE(patient(3).stop_reason(every_100({3, 2, 2.5, 2.4, 1.9, 2, 2})));
  EXPECT_TRUE(patient(3).stop_reason(every_100({3, 2, 2.5, 2.4, 1.9, 2, 2, 2})));
}

TEST(EarlyStoppingTest, IgnoresImprovementBelowMinDelta) {
  EarlyStopping rule = patient(2);
  rule.min_delta = 0.1;
  EXPECT_TRUE(rule.stop_reason(every_100({2, 1.95, 1.91})));
  EXPECT_FALSE(rule.stop_reason(every_100({2, 1.95, 1.89})));
}

TEST(EarlyStoppingTest, TreatsHigherAccuracyAsBetter) {
  EarlyStopping rule = patient(2);
  rule.monitor = kAccuracy;
  EXPECT_FALSE(rule.stop_reason(every_100({0.1, 0.2, 0.3, 0.4})));
  EXPECT_TRUE(rule.stop_reason(every_100({0.4, 0.3, 0.2})));
}

TEST(EarlyStoppingTest, ComparesNothingWithNonfiniteValues) {
  EarlyStopping rule = patient(2);
  rule.patience_steps = 200;
  for (const double undefined : {std::nan(""), double(INFINITY), -double(INFINITY)}) {
    EXPECT_FALSE(rule.stop_reason(every_100({undefined, undefined, undefined, undefined})));
    EXPECT_FALSE(rule.stop_reason(every_100({1, undefined, undefined, undefined})));
    EXPECT_FALSE(rule.stop_reason(every_100({undefined, 1, 2})));
    const auto reason = rule.stop_reason(every_100({undefined, 1, undefined, 2, 2}));
    ASSERT_TRUE(reason);
    EXPECT_EQ(*reason,
              "val/loss has not become better than 1 of step 200 in 2 evaluations up to step 500");
  }
}

TEST(EarlyStoppingTest, ReachesNoThresholdWithNonfiniteValue) {
  const EarlyStopping rule{.monitor = kAccuracy, .stop_at = 0.5};
  EXPECT_FALSE(rule.stop_reason(every_100({0.1, INFINITY})));
  EXPECT_FALSE(rule.stop_reason(every_100({0.1, std::nan("")})));
}

TEST(EarlyStoppingTest, SupportsPatienceInSteps) {
  const EarlyStopping rule{.monitor = {"val", "loss"}, .patience_steps = 250};
  EXPECT_FALSE(rule.stop_reason(every_100({1, 2, 2})));
  EXPECT_TRUE(rule.stop_reason(every_100({1, 2, 2, 2})));
}

TEST(EarlyStoppingTest, StopsWhenThresholdIsReached) {
  EarlyStopping rule{.monitor = {"val", "loss"}, .stop_at = 0.5};
  EXPECT_TRUE(rule.is_on());
  EXPECT_FALSE(rule.stop_reason(every_100({1, 0.6})));
  EXPECT_TRUE(rule.stop_reason(every_100({1, 0.5})));
  EXPECT_EQ(*rule.stop_reason(every_100({1, 0.4})),
            "val/loss is 0.4 at step 200, past eval.early_stopping.stopping_threshold 0.5");
  rule.monitor = kAccuracy;
  EXPECT_TRUE(rule.stop_reason(every_100({0.6})));
  EXPECT_FALSE(rule.stop_reason(every_100({0.4})));
}

TEST(EarlyStoppingTest, FormatsDistinctTextPerRule) {
  EarlyStopping other = patient(3);
  other.min_delta = 1e-9;
  EXPECT_NE(patient(3).to_text(), patient(4).to_text());
  EXPECT_NE(patient(3).to_text(), other.to_text());
  EXPECT_EQ(patient(3).to_text(), patient(3).to_text());
}

TEST(EarlyStoppingTest, DirectionIsPartOfRule) {
  EarlyStopping other = patient(3);
  other.monitor.direction = eval_metrics::Direction::kMaximize;
  EXPECT_NE(patient(3).to_text(), other.to_text())
      << "a decision by the other direction must not end the run";
}

TEST(MonitorTest, TakesDirectionFromTable) {
  config::EvalConfig config;
  config.datasets = {"val"};
  EXPECT_EQ(make_monitor(config, kTable)->direction, eval_metrics::Direction::kMinimize);
  config.monitor = "accuracy";
  const auto monitor = make_monitor(config, kTable);
  EXPECT_EQ(monitor->direction, eval_metrics::Direction::kMaximize);
  EXPECT_TRUE(monitor->is_better(0.9, 0.8));
  EXPECT_FALSE(monitor->is_better(0.8, 0.9));
}

TEST(MonitorTest, RejectsMetricThatTableLacks) {
  config::EvalConfig config;
  config.monitor = "acuracy";
  const auto monitor = make_monitor(config, kTable);
  EXPECT_EQ(monitor.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      monitor.status().message(),
      "eval.monitor: 'acuracy' is not a metric of this task; did you mean 'accuracy'?; choose "
      "one of loss, accuracy, perplexity");
}

TEST(MonitorTest, DefaultsToLossOfFirstDataset) {
  config::EvalConfig config;
  config.datasets = {"val", "test"};
  EXPECT_EQ(make_monitor(config, kTable)->to_text(), "val/loss");
  config.monitor = "accuracy";
  EXPECT_EQ(make_monitor(config, kTable)->to_text(), "val/accuracy");
  config.monitor = "test/perplexity";
  EXPECT_EQ(make_monitor(config, kTable)->to_text(), "test/perplexity");
}

TEST(MonitorTest, ReportsUnknownMetricWithAvailableOnes) {
  EvalResult result;
  result.datasets = {{"val", 4, {{"loss", 1.5}, {"accuracy", 0.25}}}};
  EXPECT_EQ(*monitored_value(result, {"val", "accuracy"}), 0.25);
  const auto missing = monitored_value(result, {"val", "bleu"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message(),
            "eval.monitor: val/bleu does not exist; set it to one of val/loss, val/accuracy");
}

TEST(EarlyStopRequestTest, RoundTripsThroughJson) {
  const EarlyStopRequest request{
      .step = 1200, .rule = "val/loss patience=3", .reason = "no \"better\""};
  const auto read = parse_early_stop_request(to_json(request), "early_stop.json");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->step, 1200u);
  EXPECT_EQ(read->rule, request.rule);
  EXPECT_EQ(read->reason, request.reason);
}

TEST(EarlyStopRequestTest, ReportsCorruptFileWithPath) {
  for (const char* const text : {"", "{", "[]", "{}", R"({"step":-1,"rule":"","reason":""})",
                                 R"({"step":1,"rule":2,"reason":""})"}) {
    const auto read = parse_early_stop_request(text, "run/eval/early_stop.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(read.status().message().find("run/eval/early_stop.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace stoker::run
