#include "shared/run/eval_result.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

EvalResult two_sets() {
  EvalResult result;
  result.step = 1200;
  result.manifest_sha256 = "ab12";
  result.datasets = {{"val", 64, {{"loss", 1.25}, {"accuracy", 0.5}}},
                     {"far", 8, {{"loss", std::numeric_limits<double>::infinity()}}}};
  result.seconds = 3.5;
  result.created = "2026-01-31T12:00:00.000Z";
  return result;
}

TEST(EvalResultTest, RoundTripsThroughJsonWithInfinityAsNull) {
  const std::string json = to_json(two_sets());
  EXPECT_NE(json.find("\"val\":{\"loss\":1.25"), std::string::npos) << json;
  const auto back = parse_eval_result(json, "step.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->step, 1200u);
  EXPECT_EQ(back->manifest_sha256, "ab12");
  ASSERT_EQ(back->datasets.size(), 2u);
  EXPECT_EQ(back->datasets[0].samples, 64u);
  EXPECT_EQ(back->datasets[0].metrics[1].first, "accuracy");
  EXPECT_EQ(back->datasets[0].metrics[0].second, 1.25);
  EXPECT_TRUE(std::isnan(back->datasets[1].metrics[0].second));
}

TEST(EvalResultTest, StoresKnownResources) {
  EvalResult result{
      .step = 1, .manifest_sha256 = "ab", .datasets = {}, .seconds = 2, .created = "now"};
  EXPECT_EQ(to_json(result).find("cpu_cores"), std::string::npos);
  result.resources[Resource::kCpu] = 1.5;
  const std::string json = to_json(result);
  EXPECT_NE(json.find(R"("cpu_cores":1.5E0)"), std::string::npos) << json;
  EXPECT_EQ(json.find("worker_cpu_cores"), std::string::npos) << json;
  const auto read = parse_eval_result(json, "f");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->resources[Resource::kCpu], 1.5);
  EXPECT_TRUE(std::isnan(read->resources[Resource::kRss]));
}

TEST(EvalResultTest, StoresNumberOfQuarantinedSamplesUnlessZero) {
  EvalResult result = two_sets();
  EXPECT_EQ(to_json(result).find("quarantined"), std::string::npos);
  result.datasets[1].quarantined = 3;
  const auto back = parse_eval_result(to_json(result), "step.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->datasets[0].quarantined, 0u);
  EXPECT_EQ(back->datasets[1].quarantined, 3u);
  EXPECT_EQ(back->datasets[1].metrics.size(), 1u) << "it is not a metric";
}

TEST(EvalResultTest, RoundTripsPerClassMetricsAndConfusionMatrix) {
  EvalResult result = two_sets();
  result.datasets[0].classes = {{"cat", 40, 0.5, 0.25, 1.0 / 3}, {"dog \"x\"", 24, 0, 0, 0}};
  result.datasets[0].confusion_matrix = {{10, 30}, {10, 14}};
  const auto back = parse_eval_result(to_json(result), "step.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->datasets[0].classes, result.datasets[0].classes);
  EXPECT_EQ(back->datasets[0].confusion_matrix, result.datasets[0].confusion_matrix);
  EXPECT_EQ(back->datasets[0].metrics, result.datasets[0].metrics);
  EXPECT_TRUE(back->datasets[1].classes.empty());
}

TEST(EvalResultTest, RoundTripsWhichWeightsWereEvaluated) {
  for (const std::optional<bool> use_ema :
       {std::optional<bool>(), std::optional(false), std::optional(true)}) {
    EvalResult result = two_sets();
    result.maybe_use_ema = use_ema;
    const auto back = parse_eval_result(to_json(result), "step.json");
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->maybe_use_ema, use_ema);
  }
}

TEST(EvalResultTest, RoundTripsPrCurves) {
  EvalResult result = two_sets();
  result.datasets[0].pr_curves = {{"cat", {40, 30, 0}, {24, 2, 0}},
                                  {"dog", {24, 0, 0}, {40, 1, 1}}};
  const auto back = parse_eval_result(to_json(result), "step.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->datasets[0].pr_curves, result.datasets[0].pr_curves);
  EXPECT_TRUE(back->datasets[1].pr_curves.empty());
}

TEST(EvalResultTest, IgnoresFieldsOfLaterReleases) {
  const auto result = parse_eval_result(
      R"({"step":1,"manifest_sha256":"ab","datasets":{"val":{"loss":2,"later":[1],"more":{"a":1},)"
      R"("num_samples":3}},"duration_seconds":1,"created_at":"now"})",
      "step.json");
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->datasets[0].metrics, (MetricValues{{"loss", 2}}));
}

TEST(BestCheckpointTest, RoundTripsHistoryAndPerMetricValues) {
  const BestCheckpoint best{"val",
                            "loss",
                            1.25,
                            1200,
                            "ab12",
                            {{2.5, 200, "aa"}, {1.25, 1200, "ab12"}},
                            {{"val/accuracy", {0.75, 900, "cc"}}}};
  const auto back = parse_best(to_json(best), "best.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, best);
}

TEST(BestCheckpointTest, ParsesEarlierVersion) {
  const auto back =
      parse_best(R"({"dataset":"val","metric":"loss","value":1.5,"step":7,"manifest_sha256":"ab"})",
                 "best.json");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->step, 7u);
  EXPECT_TRUE(back->history.empty());
}

// If the loss were off by one unit in the last place, an equal checkpoint would become a better
// one.
TEST(EvalResultTest, RoundTripsLossAndBestValueBitForBit) {
  EvalResult result = two_sets();
  result.datasets[0].metrics[0].second = 0.9674570043571293;
  EXPECT_EQ(parse_eval_result(to_json(result), "r")->datasets[0].metrics[0].second,
            0.9674570043571293);
  const BestCheckpoint best{"val", "loss", 0.9674570043571293, 1200, "ab12"};
  EXPECT_EQ(parse_best(to_json(best), "b")->value, 0.9674570043571293);
}

TEST(EvalResultTest, RejectsTruncationAtAnyByte) {
  const std::string json = to_json(two_sets());
  for (size_t length = 0; length + 2 < json.size(); ++length) {
    EXPECT_EQ(parse_eval_result(json.substr(0, length), "p").status().code(), StatusCode::kCorrupt)
        << length;
  }
}

TEST(EvalResultTest, UsesStepInFileName) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(write_eval_result(default_file_system(), directory.path(), two_sets()).ok());
  EXPECT_TRUE(std::filesystem::exists(directory / "step-000001200.json"));
  const RunLayout layout(directory.path());
  EXPECT_EQ(read_best(layout).status().code(), StatusCode::kNotFound);
  const BestCheckpoint best{"val", "loss", 1.25, 1200, "ab12", {}, {}};
  ASSERT_TRUE(make_directories(default_file_system(), layout.eval_dir()).ok());
  ASSERT_TRUE(write_file_atomically(default_file_system(), layout.best_file(), to_json(best)).ok());
  EXPECT_EQ(read_best(layout)->step, 1200u);
}

}  // namespace
}  // namespace stoker::run
