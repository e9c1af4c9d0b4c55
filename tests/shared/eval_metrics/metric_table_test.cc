#include "shared/eval_metrics/metric_table.h"

#include <cmath>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/eval_metrics/caption_metrics.h"
#include "shared/eval_metrics/entity_metrics.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "tests/support/temporary_directory.h"

namespace stoker::eval_metrics {
namespace {

using ::testing::HasSubstr;

// ---- Directions, by predictions of which one is right and the other wrong

using Values = std::map<std::string, double>;

void add(const EvalReport& report, Values& values) {
  values.insert(report.metrics.begin(), report.metrics.end());
}

// Six classes, so that five of them are fewer.
EvalReport classified(bool is_right) {
  ClassificationMetrics metrics({.classes = 6, .top_k = 5});
  const std::vector<int64_t> labels{0, 1, 2, 3, 4, 5}, wrong{1, 2, 3, 4, 5, 0};
  const std::vector<float> losses(6, is_right ? 0.1f : 3.0f), confidences(6, 0.9f);
  const std::vector<uint8_t> in_top_k(6, is_right ? 1 : 0);
  metrics.add({losses, labels, is_right ? labels : wrong, confidences, in_top_k});
  return metrics.report();
}

EvalReport binary(bool is_right) {
  BinaryClassificationMetrics metrics(0);
  const float sign = is_right ? 1.0f : -1.0f;
  const std::vector<float> losses(4, is_right ? 0.1f : 3.0f);
  const std::vector<float> logits{-2 * sign, -sign, sign, 2 * sign};
  metrics.add(losses, logits, std::vector<int64_t>{0, 0, 1, 1});
  return metrics.report();
}

EvalReport multilabel(bool is_right) {
  MultilabelMetrics metrics(2);
  const float sign = is_right ? 1.0f : -1.0f;
  metrics.add(std::vector<float>(2, is_right ? 0.1f : 3.0f),
              std::vector<float>{sign, -sign, -sign, sign}, std::vector<float>{1, 0, 0, 1});
  return metrics.report();
}

EvalReport regressed(bool is_right) {
  RegressionMetrics metrics(1);
  metrics.add(std::vector<float>(3, is_right ? 0.1f : 3.0f),
              is_right ? std::vector<float>{1, 2, 3} : std::vector<float>{3, 2, 1},
              std::vector<float>{1, 2, 3});
  return metrics.report();
}

EvalReport predicted_tokens(bool is_right, bool are_bytes) {
  LanguageModelingMetrics metrics(are_bytes);
  const std::vector<int64_t> targets{1, 2}, others{2, 1};
  metrics.add(std::vector<float>(2, is_right ? 0.1f : 3.0f), targets, is_right ? targets : others);
  metrics.add_replies(targets, is_right ? targets : others, std::vector<int64_t>{1, 0});
  return metrics.report();
}

EvalReport decoded(bool is_right) {
  LabelErrorRate metrics;
  const std::vector<int64_t> labels{1, 2}, others{3};
  metrics.add(is_right ? 0.1f : 3.0f, is_right ? labels : others, labels);
  return metrics.report();
}

EvalReport tagged(bool is_right) {
  EntityMetrics metrics({"O", "B-PER"});
  metrics.add(std::vector<int64_t>{1, 0}, std::vector<int64_t>{is_right ? 1 : 0, is_right ? 0 : 1});
  return {.metrics = metrics.metrics()};
}

EvalReport captioned(bool is_right) {
  CaptionMetrics metrics;
  metrics.add(is_right ? "a black dog runs fast" : "no", {"a black dog runs fast"});
  metrics.add(is_right ? "two red boats at sea" : "yes", {"two red boats at sea"});
  return {.metrics = metrics.metrics()};
}

// Of every metric that an evaluation can report.
Values values_of(bool is_right) {
  Values values;
  for (const EvalReport& report :
       {classified(is_right), binary(is_right), multilabel(is_right), regressed(is_right),
        predicted_tokens(is_right, true), predicted_tokens(is_right, false), decoded(is_right),
        tagged(is_right), captioned(is_right)})
    add(report, values);
  return values;
}

TEST(MetricTableTest, RightPredictionsAreBetterThanWrongOnesByEveryMetric) {
  const Values right = values_of(true), wrong = values_of(false);
  for (const BuiltinMetric& metric : builtin_metrics()) {
    const std::string name(metric.name == kTopKAccuracy ? "top5_accuracy" : metric.name);
    ASSERT_TRUE(right.contains(name)) << name << " is never reported";
    const double difference = right.at(name) - wrong.at(name);
    if (metric.direction == Direction::kMaximize)
      EXPECT_GT(difference, 0) << name;
    else
      EXPECT_LT(difference, 0) << name;
  }
}

TEST(MetricTableTest, HasEveryMetricThatIsReported) {
  for (const auto& [name, value] : values_of(true)) {
    const std::string declared = name == "top5_accuracy" ? std::string(kTopKAccuracy) : name;
    EXPECT_TRUE(std::ranges::find(builtin_metrics(), declared, &BuiltinMetric::name) !=
                builtin_metrics().end())
        << name;
  }
}

// ---- Files

TEST(MetricTableTest, ReadsWhatItWrites) {
  const MetricTable table({{.name = "loss", .unit = "nats", .help = "mean"},
                           {.name = "dice",
                            .direction = Direction::kMaximize,
                            .unit = "fraction",
                            .aggregation = Aggregation::kDataset,
                            .help = "2 |A ∩ B| / (|A| + |B|)"}});
  const auto read = parse_metric_table(to_json(table), "t.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, table);
}

TEST(MetricTableTest, RejectsInvalidRows) {
  const std::string rest = R"(,"direction":"maximize"})";
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"nonsense", "not JSON"},
           {R"({"metrics": 1})", "wrong type"},
           {R"({"metrics": [{"name": "a"}]})", "a field is missing"},
           {R"({"metrics": [{"name": "a", "direction": "up"}]})",
            "direction must be minimize or maximize"},
           {R"({"metrics": [{"name": "a/b")" + rest + "]}", "name must consist of a to z"},
           {R"({"metrics": [{"name": "a\u001b")" + rest + "]}", "name must consist of"},
           {R"({"metrics": [{"name": "")" + rest + "]}", "name must consist of"},
           {R"({"metrics": [{"name": "a", "help": "\u001b[2J")" + rest + "]}", "printable"},
           {R"({"metrics": [{"name": "a")" + rest + R"(,{"name": "a")" + rest + "]}",
            "lists the metric 'a' twice"}}) {
    const auto read = parse_metric_table(text, "t.json");
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("t.json: "));
    EXPECT_THAT(read.status().message(), HasSubstr(error)) << text;
  }
}

class ModelMetricsTest : public ::testing::Test {
 protected:
  void list(const std::string& name) const {
    std::ofstream(folder_ / "net.metrics.json")
        << R"({"metrics": [{"name": ")" << name << R"(", "direction": "maximize"}]})";
  }
  Result<MetricTable> read() const {
    return read_model_metrics(plugin_metrics_path(folder_ / "net.so"));
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(ModelMetricsTest, AreListedNextToSharedObject) {
  EXPECT_EQ(plugin_metrics_path("models/net.so"), "models/net.metrics.json");
  EXPECT_TRUE(read()->rows().empty()) << "a plugin need not have metrics";
  list("dice");
  EXPECT_EQ(read()->find("dice")->direction, Direction::kMaximize);
}

TEST_F(ModelMetricsTest, CannotHaveNamesThatMeanSomethingElse) {
  for (const char* const name : {"loss", "step", "num_samples", "grad_norm", "degraded"}) {
    list(name);
    EXPECT_EQ(read().status().code(), StatusCode::kCorrupt) << name;
    EXPECT_THAT(read().status().message(), HasSubstr("rename it")) << name;
  }
}

}  // namespace
}  // namespace stoker::eval_metrics
