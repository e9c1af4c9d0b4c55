// Compares the evaluator with metrics that PyTorch computed from the same weights and data
// (make_evaluation.py). STOKER_PARITY_EVALUATION is a newly generated folder; without it, the
// golden files are used.
#include <cmath>
#include <cstdlib>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "evaluator/checkpoint_evaluator.h"
#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "tests/parity/generated.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

namespace json = boost::json;

class EvaluationParityTest : public ::testing::TestWithParam<std::string> {
 protected:
  EvaluationParityTest() {
    const char* const generated = parity::generated("STOKER_PARITY_EVALUATION");
    folder_ = generated != nullptr ? generated : STOKER_PARITY_GOLDEN "/evaluation";
    const auto text = read_file(folder_ + "/expected.json", 1 << 20);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    if (text.ok()) expected_ = json::parse(*text).at(GetParam());
  }

  run::DatasetResult evaluate(int batch) const {
    std::vector<std::string> options{"eval.batch_size=" + std::to_string(batch),
                                     "feed.num_processes=0"};
    for (const char* const dataset : {"train", "val"}) {
      const std::string key = std::string("data.") + dataset;
      if (GetParam() == "gpt") {
        options.push_back(key + ".path=" + folder_ + "/corpus.txt");
        continue;
      }
      const bool is_binary = GetParam() == "binary";
      options.push_back(key + ".path=" + folder_ + (is_binary ? "/vectors.npy" : "/images.npy"));
      options.push_back(key + ".labels_path=" + folder_ +
                        (is_binary ? "/binary_labels.npy" : "/labels.npy"));
    }
    const auto config = config::load_config(folder_ + "/" + GetParam() + ".yaml", options);
    EXPECT_TRUE(config.ok()) << config.status().message();
    const auto evaluator =
        CheckpointEvaluator::create(*config, {.own = index_.path()}, system_clock());
    EXPECT_TRUE(evaluator.ok()) << evaluator.status().to_string();
    const auto result = (*evaluator)->measure_file(folder_ + "/" + GetParam() + ".safetensors", {});
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result->datasets.at(0);
  }

  double expected_metric(const std::string& name) const {
    return expected_.at("metrics").at(name).to_number<double>();
  }

  const test::TemporaryDirectory index_;
  std::string folder_;
  json::value expected_;
};

TEST_P(EvaluationParityTest, MatchesPyTorchMetrics) {
  const run::DatasetResult found = evaluate(16);
  EXPECT_EQ(found.samples, expected_.at("samples").to_number<uint64_t>());
  EXPECT_EQ(found.metrics.size(), expected_.at("metrics").as_object().size());
  for (const auto& [name, value] : found.metrics)
    EXPECT_NEAR(value, expected_metric(name), 2e-6 * std::abs(expected_metric(name))) << name;
}

TEST_P(EvaluationParityTest, MatchesPyTorchPerClassMetricsAndConfusionMatrix) {
  const run::DatasetResult found = evaluate(16);
  if (GetParam() == "gpt") {
    EXPECT_TRUE(found.classes.empty());
    return;
  }
  eval_metrics::ConfusionMatrix confusion_matrix;
  for (const json::value& row : expected_.at("confusion").as_array()) {
    confusion_matrix.emplace_back();
    for (const json::value& count : row.as_array())
      confusion_matrix.back().push_back(count.to_number<uint64_t>());
  }
  EXPECT_EQ(found.confusion_matrix, confusion_matrix);
  const json::array& classes = expected_.at("classes").as_array();
  ASSERT_EQ(found.classes.size(), classes.size());
  for (size_t i = 0; i < classes.size(); ++i) {
    EXPECT_EQ(found.classes[i].samples, classes[i].at("samples").to_number<uint64_t>());
    EXPECT_DOUBLE_EQ(found.classes[i].precision, classes[i].at("precision").to_number<double>());
    EXPECT_DOUBLE_EQ(found.classes[i].recall, classes[i].at("recall").to_number<double>());
    EXPECT_DOUBLE_EQ(found.classes[i].f1, classes[i].at("f1").to_number<double>());
  }
}

TEST_P(EvaluationParityTest, ReturnsBitIdenticalMetricsOnRepeat) {
  EXPECT_EQ(evaluate(16).metrics, evaluate(16).metrics);
}

// Only the float32 arithmetic of the model may differ between batch sizes.
TEST_P(EvaluationParityTest, ChangesOnlyRoundingWithBatchSize) {
  const run::DatasetResult one_way = evaluate(16);
  for (const int batch : {1, 7, 1000}) {
    const run::DatasetResult other = evaluate(batch);
    EXPECT_EQ(other.confusion_matrix, one_way.confusion_matrix) << batch;
    ASSERT_EQ(other.metrics.size(), one_way.metrics.size());
    for (size_t i = 0; i < other.metrics.size(); ++i)
      EXPECT_NEAR(other.metrics[i].second, one_way.metrics[i].second,
                  1e-6 * std::abs(one_way.metrics[i].second))
          << batch << " " << other.metrics[i].first;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EvaluationParityTest, ::testing::Values("gpt", "lenet", "binary"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::evaluator
