// task.class_weights: balanced with the real programs: a run trains and is evaluated as with the
// equivalent list of weights, and keeps these weights when its data changes.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/dataset_refresh_fixture.h"

namespace stoker::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Balanced weights of 40 cats, 20 cows and 4 dogs.
constexpr const char* kTheirWeights = "[0.5333333333333333, 1.0666666666666667, 5.333333333333333]";

class ClassWeightsTest : public DatasetRefreshFixture {
 protected:
  void SetUp() override {
    DatasetRefreshFixture::SetUp();
    std::string rows = "x,y,kind\n";
    for (int i = 0; i < 64; ++i) rows += row(i, i % 16 == 0 ? "dog" : i % 3 == 0 ? "cow" : "cat");
    ASSERT_EQ(count(rows, "dog"), 4);
    ASSERT_EQ(count(rows, "cow"), 20);
    std::ofstream(path("train.csv")) << rows;
  }
  static std::string row(int number, const std::string& kind) {
    return std::to_string(number % 7) + "," + std::to_string(0.25 * number) + "," + kind + "\n";
  }
  static int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  std::string config_of(const std::string& weights) const {
    const std::string set =
        "{format: csv, fields: {label: kind}, path: " + path("train.csv") + "}\n";
    return write_config(
        "data:\n  train: " + set + "  val: " + set +
            "model: {name: mlp, hidden_sizes: [8]}\n"
            "task: {name: classification, label_smoothing: 0.1, class_weights: " +
            weights +
            "}\ncheckpoint: {save_every_steps: 30}\n"
            "train: {max_steps: 60, micro_batch_size: 16, device: cpu, num_threads: 1}\n",
        weights == "balanced" ? "balanced.yaml" : "list.yaml");
  }
  double evaluated_loss(const std::string& run) const {
    EXPECT_EQ(evaluator(run, {"--once"}).wait(60s)->code, 0) << log_of("stoker-eval");
    return newest_result(run).metrics.front().second;
  }
  // The log lines of all computations of class weights.
  std::vector<std::string> weighings() const {
    std::vector<std::string> found;
    const std::string log = log_of("stokerd");
    for (size_t at = 0; (at = log.find("class weights computed ", at)) != std::string::npos; ++at)
      found.push_back(log.substr(at, log.find('\n', at) - at));
    return found;
  }
};

TEST_F(ClassWeightsTest, MatchesExplicitListWithBalancedWeights) {
  ASSERT_EQ(train(config_of("balanced"), run_dir("a")).code, 0) << log_of("stokerd");
  EXPECT_THAT(weighings(), ElementsAre(HasSubstr("cat=0.5333 cow=1.067 dog=5.333")));
  ASSERT_EQ(train(config_of(kTheirWeights), run_dir("b")).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir("a"), 60), model_sha256(run_dir("b"), 60));
  ASSERT_EQ(train(config_of("[]"), run_dir("c")).code, 0) << log_of("stokerd");
  EXPECT_NE(model_sha256(run_dir("c"), 60), model_sha256(run_dir("b"), 60));

  EXPECT_EQ(evaluated_loss(run_dir("a")), evaluated_loss(run_dir("b")));
  EXPECT_NE(evaluated_loss(run_dir("a")), evaluated_loss(run_dir("c")));
}

TEST_F(ClassWeightsTest, PreservesWeightsOnResumeWithOtherData) {
  const std::string config = config_of("balanced");
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=30"}).code, 0) << log_of("stokerd");
  std::ofstream(path("train.csv"), std::ios::app) << row(1, "dog") + row(2, "dog") + row(3, "dog");
  ASSERT_EQ(train(config, run_dir(), {"--allow-data-change"}).code, 0) << log_of("stokerd");
  EXPECT_THAT(weighings(), ElementsAre(HasSubstr("source=data.train "),
                                       AllOf(HasSubstr("source=checkpoint "),
                                             HasSubstr("cat=0.5333 cow=1.067 dog=5.333"))));
}

TEST_F(ClassWeightsTest, PreservesWeightsOnDatasetRefresh) {
  std::string yaml = text_of(config_with(
      "{format: csv, fields: {label: kind}, refresh: epoch, path: " + path("train.csv") + "}"));
  const std::string task = "task: {name: classification";
  yaml.insert(yaml.find(task) + task.size(), ", class_weights: balanced");
  Process trainer = paused_trainer(write_config(yaml));
  std::ofstream(path("train.csv"), std::ios::app) << row(1, "dog") + row(2, "dog") + row(3, "dog");
  ASSERT_TRUE(wait_until(60s, [&] { return log_contains("new data found samples=67"); }));
  send_command("resume");
  const auto exit = trainer.wait(90s);
  ASSERT_TRUE(exit && exit->code == 0) << log_of("stokerd");
  EXPECT_EQ(history(run_dir()).size(), 2u);
  EXPECT_THAT(weighings(), ElementsAre(HasSubstr("source=data.train "),
                                       AllOf(HasSubstr("source=checkpoint "),
                                             HasSubstr("cat=0.5333 cow=1.067 dog=5.333"))));
}

}  // namespace
}  // namespace stoker::test
