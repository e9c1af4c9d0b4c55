#include "shared/config/run_metrics.h"

#include <filesystem>
#include <fstream>

#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config {
namespace {

using test::errors_of;
using test::kTextData;
using test::valid_config;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kTable = "data: {train: {format: csv, path: a.csv, fields: {label: y}}}\n";

TEST(RunMetricsTest, NamesTasksThatExist) {
  int num_tasks = 0;
  for (const eval_metrics::BuiltinMetric& metric : eval_metrics::builtin_metrics()) {
    std::istringstream tasks{std::string(metric.tasks)};
    for (std::string task; tasks >> task; ++num_tasks)
      EXPECT_TRUE(std::ranges::find(kWords<TaskName>, task) != std::end(kWords<TaskName>))
          << metric.name << " of " << task;
  }
  EXPECT_GT(num_tasks, 0);
}

TEST(RunMetricsTest, HasEntitiesOfTags) {
  const std::string tokens =
      "data: {train: {format: jsonl, path: a.jsonl, sequence: {max_length: 8}, "
      "fields: {input_ids: x, labels: y}, num_classes: 3}}\n"
      "model: {name: bert, pooling: none}\n";
  const auto table_of = [&](const std::string& task) {
    return task_metrics(valid_config(tokens + "task: " + task + "\n"));
  };
  EXPECT_EQ(table_of("{name: sequence_labeling}").find("entity_f1"), nullptr);
  for (const char* const metric : {"entity_precision", "entity_recall", "entity_f1"})
    EXPECT_NE(table_of("{name: sequence_labeling, tags: [O, B-X, I-X]}").find(metric), nullptr)
        << metric;
}

TEST(RunMetricsTest, IsOfTheTask) {
  const std::string binary = kTable + "model: {name: mlp}\ntask: {name: binary_classification}\n";
  EXPECT_THAT(
      task_metrics(valid_config(binary)).names(),
      ElementsAre("loss", "accuracy", "precision", "recall", "f1", "auroc", "average_precision"));
  EXPECT_THAT(errors_of(binary, {"eval.monitor=auroc"}), IsEmpty());
  EXPECT_THAT(
      errors_of(binary, {"eval.monitor=macro_f1"}),
      ElementsAre(HasSubstr("eval.monitor=macro_f1: 'macro_f1' is not a metric of this task")));
  EXPECT_THAT(
      errors_of(binary, {"checkpoint.monitor=[f1, perplexity]"}),
      ElementsAre(HasSubstr("checkpoint.monitor=[f1, perplexity]: 'perplexity' is not a metric")));
}

TEST(RunMetricsTest, SuggestsMetricForUnknownMonitor) {
  EXPECT_THAT(errors_of(kTextData, {"eval.monitor=perplexty"}),
              ElementsAre(HasSubstr(
                  "eval.monitor=perplexty: 'perplexty' is not a metric of this task; did you mean "
                  "'perplexity'?; choose one of loss, bits_per_byte, bits_per_token, perplexity")));
  EXPECT_THAT(errors_of(kTextData, {"eval.monitor=val/"}), Not(IsEmpty()));
}

TEST(RunMetricsTest, NamesTopKBySetting) {
  const std::string text = kTable + "model: {name: mlp}\ntask: {name: classification}\n";
  EXPECT_THAT(errors_of(text, {"eval.monitor=top5_accuracy"}), IsEmpty());
  EXPECT_THAT(errors_of(text, {"eval.monitor=top3_accuracy", "eval.top_k=3"}), IsEmpty());
  EXPECT_THAT(errors_of(text, {"eval.monitor=top5_accuracy", "eval.top_k=3"}), Not(IsEmpty()));
  EXPECT_THAT(errors_of(text, {"eval.monitor=top5_accuracy", "eval.top_k=null"}), Not(IsEmpty()));
}

TEST(RunMetricsTest, DependsOnData) {
  Config config = valid_config(kTextData, {"eval.monitor=bits_per_byte"});
  EXPECT_TRUE(resolve_metrics(config, EvaluatedOutputs{.tokens_are_bytes = true}).ok());
  EXPECT_FALSE(resolve_metrics(config, EvaluatedOutputs{.tokens_are_bytes = false}).ok());
  config = valid_config(kTable + "model: {name: mlp}\ntask: {name: classification}\n",
                        {"eval.monitor=top5_accuracy"});
  EXPECT_TRUE(resolve_metrics(config, EvaluatedOutputs{.num_classes = 6}).ok());
  EXPECT_FALSE(resolve_metrics(config, EvaluatedOutputs{.num_classes = 5}).ok());
}

TEST(RunMetricsTest, AddsMetricsOfModelWithTaskCustom) {
  const stoker::test::TemporaryDirectory folder;
  const std::string text = kTable + "model: {name: exported, path: " + (folder / "net") +
                           "}\ntask: {name: custom}\neval: {monitor: dice}\n";
  const Config config = valid_config(text);
  std::filesystem::create_directory(folder / "net");
  EXPECT_THAT(resolve_metrics(config).status().message(),
              HasSubstr("eval.monitor: 'dice' is not a metric of this task"));
  std::ofstream(folder / "net/graph.json")
      << R"({"format": 1, "metrics": [{"name": "dice", "direction": "maximize"}]})";
  const auto table = resolve_metrics(config);
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_EQ(table->find("dice")->direction, eval_metrics::Direction::kMaximize);
  EXPECT_NE(table->find("loss"), nullptr);
  std::ofstream(folder / "net/graph.json") << "{";
  EXPECT_EQ(resolve_metrics(config).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(resolve_metrics(config).status().message(), HasSubstr("model.path: "));
}

}  // namespace
}  // namespace stoker::config
