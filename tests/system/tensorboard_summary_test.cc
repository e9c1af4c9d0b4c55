// Configuration, graph, samples and histograms of a run, read by TensorBoard's own loader.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

class TensorBoardSummaryTest : public RunTest {
 protected:
  // Empty if TensorBoard is not installed.
  json::object read(const std::string& folder, const std::string& log,
                    const std::string& script = STOKER_READ_EVENTS_PY) const {
    const char* const python = ::getenv("STOKER_PYTHON");
    if (python == nullptr) return {};
    Process loader({python, script, folder}, path(log + ".out"));
    const auto ended = loader.wait(120s);
    if (!ended || ended->code == 77) return {};
    EXPECT_EQ(ended->code, 0) << log_of(log);
    const std::string printed = log_of(log);
    return json::parse(printed.substr(printed.find('{'))).as_object();
  }
};

std::string string_of(const json::value& value) { return std::string(value.as_string()); }

// Name, operation, inputs, shapes and attributes of each node: files, worker processes, ring, model,
// loss and optimizer are connected, and every edge has a shape.
void expect_data_flow(const json::array& graph) {
  std::map<std::string, json::array> nodes;
  for (const json::value& node : graph) nodes[string_of(node.at(0))] = node.as_array();
  const std::vector<std::pair<std::string, std::string>> edges{
      {"feed/files", "feed/workers"},      {"feed/workers", "feed/ring"},
      {"feed/workers:1", "feed/ring"},     {"feed/ring", "batch/input"},
      {"feed/ring:1", "batch/label"},      {"model/0/weight", "model/0/linear"},
      {"model/3/weight", "model/3/linear"}};
  for (const auto& [from, to] : edges) {
    ASSERT_TRUE(nodes.contains(to)) << to;
    const json::array& inputs = nodes[to].at(2).as_array();
    EXPECT_NE(std::ranges::find(inputs, json::value(from)), inputs.end()) << from << " to " << to;
  }
  for (const auto& [name, node] : nodes) {
    for (const json::value& input : node.at(2).as_array()) {
      const std::string source = string_of(input).substr(0, string_of(input).find(':'));
      ASSERT_TRUE(nodes.contains(source)) << name << " takes " << source;
      EXPECT_TRUE(source == "feed/files" || !nodes[source].at(3).as_array().empty())
          << "the shape of " << source;
    }
  }
  const auto optimizer = std::ranges::find_if(
      nodes, [](const auto& item) { return item.first.starts_with("optimizer/"); });
  ASSERT_NE(optimizer, nodes.end());
  // The optimizer is reached from the files.
  std::set<std::string> reached;
  std::vector<std::string> open{optimizer->first};
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    if (!reached.insert(name).second) continue;
    for (const json::value& input : nodes[name].at(2).as_array())
      open.push_back(string_of(input).substr(0, string_of(input).find(':')));
  }
  for (const char* const name : {"feed/files", "batch/label", "model/0/linear", "model/3/linear"})
    EXPECT_TRUE(reached.contains(name)) << name;
}

TEST_F(TensorBoardSummaryTest, IsWrittenForNewAndResumedRun) {
  const std::string config = write_config(small_config());
  const std::vector<std::string> first{"--set", "train.max_steps=80", "--set",
                                       "metrics.histogram_every_steps=40"};
  ASSERT_EQ(train(config, run_dir(), first).code, 0) << log_of("stokerd");
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=120"}).code, 0)
      << log_of("stokerd");

  const json::object run = read(run_dir() + "/tensorboard", "run-events");
  if (run.empty()) GTEST_SKIP() << "STOKER_PYTHON is not set to a Python with tensorboard";
  const json::object& start = run.at("hparams")
                                  .at("_hparams_/session_start_info")
                                  .at("sessionStartInfo")
                                  .at("hparams")
                                  .as_object();
  EXPECT_EQ(start.at("model.name"), "mlp");
  EXPECT_EQ(start.at("optimizer.lr").to_number<double>(), 0.003);
  EXPECT_EQ(start.at("train.max_steps").to_number<double>(), 80);
  EXPECT_TRUE(run.at("hparams").as_object().contains("_hparams_/session_end_info"));
  expect_data_flow(run.at("graph").as_array());
  // The curves of training and validation are in one chart.
  const json::array& charts =
      run.at("layout").at("custom_scalars__config__").at("category").at(0).at("chart").as_array();
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0].at("multiline").at("tag").at(0), "^loss$");
  EXPECT_EQ(charts[1].at("multiline").at("tag").at(0), "^(train/)?accuracy$");

  const json::object curves = read(run_dir() + "/tensorboard", "train-events");
  const json::object& histograms = curves.at("histograms").as_object();
  for (const char* const tag : {"parameters/0.weight", "gradients/3.bias"}) {
    std::vector<uint64_t> steps;
    for (const json::value& one : histograms.at(tag).as_array())
      steps.push_back(one.as_array().at(0).to_number<uint64_t>());
    EXPECT_EQ(steps, (std::vector<uint64_t>{40, 80})) << tag;
  }
  const json::array& samples = curves.at("texts").at("samples").as_array();
  ASSERT_EQ(samples.size(), 1u) << "once, at the start of the run";
  const std::string table(samples[0].as_array().at(2).as_string());
  EXPECT_NE(table.find("| sample | input | label |"), std::string::npos) << table;
  EXPECT_NE(table.find("\n| 7 | "), std::string::npos) << table;
  EXPECT_EQ(table.find("\n| 8 | "), std::string::npos) << "metrics.num_logged_samples is 8";
}

// The pages HParams and PR Curves, with the code of TensorBoard's plugins.
TEST_F(TensorBoardSummaryTest, PagesCompareRuns) {
  std::filesystem::create_directory(path("runs"));
  const std::string config = write_config(small_config());
  for (const auto& [name, lr] : {std::pair("a", "0.003"), std::pair("b", "0.001")}) {
    const std::string run = run_dir(std::string("runs/") + name);
    ASSERT_EQ(train(config, run,
                    {"--set", std::string("optimizer.lr=") + lr, "--set", "train.max_steps=40"})
                  .code,
              0)
        << log_of("stokerd");
    const auto evaluated = evaluator(run, {"--once"}).wait(kPatience);
    ASSERT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
  }
  const json::object pages = read(path("runs"), "pages", STOKER_READ_PAGES_PY);
  if (pages.empty()) GTEST_SKIP() << "STOKER_PYTHON is not set to a Python with tensorboard";

  const json::object& hparams = pages.at("hparams").as_object();
  const json::array& differs = hparams.at("differs").as_array();
  EXPECT_NE(std::ranges::find(differs, json::value("optimizer.lr")), differs.end()) << differs;
  EXPECT_EQ(std::ranges::find(differs, json::value("train.max_steps")), differs.end()) << differs;
  const json::object& sessions = hparams.at("runs").as_object();
  ASSERT_EQ(sessions.size(), 2u) << sessions;
  // Training and its settings are one run, each evaluated dataset another.
  EXPECT_EQ(pages.at("names"), (json::array{"a/tensorboard", "a/tensorboard/eval/val",
                                            "b/tensorboard", "b/tensorboard/eval/val"}));
  for (const auto& [name, lr] : {std::pair("a", 0.003), std::pair("b", 0.001)}) {
    const json::object& session = sessions.at(name + std::string("/tensorboard")).as_object();
    EXPECT_EQ(session.at("hparams").at("optimizer.lr").to_number<double>(), lr);
    const run::DatasetResult result = newest_result(run_dir(std::string("runs/") + name));
    ASSERT_EQ(result.metrics.front().first, "loss");
    EXPECT_FLOAT_EQ(session.at("metrics").at("eval/" + result.dataset + "/loss").to_number<float>(),
                    static_cast<float>(result.metrics.front().second));
    EXPECT_TRUE(session.at("metrics").as_object().contains("/loss"));

    const json::object& curves =
        pages.at("pr_curves").at(name + ("/tensorboard/eval/" + result.dataset)).as_object();
    ASSERT_EQ(curves.size(), result.classes.size());
    for (const eval_metrics::PerClassMetrics& one : result.classes) {
      const json::object& curve = curves.at("pr_curves/" + one.name).as_object();
      EXPECT_EQ(curve.at("step"), 40);
      EXPECT_EQ(curve.at("true_positives").at(0).to_number<uint64_t>(), one.samples);
      EXPECT_EQ(curve.at("recall").at(0).to_number<double>(), 1);
      EXPECT_EQ(curve.at("thresholds").at(1).to_number<double>(), 0.01);
    }
  }
}

TEST_F(TensorBoardSummaryTest, IsNotWrittenWhenDisabled) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(),
                  {"--set", "train.max_steps=40", "--set", "metrics.tensorboard=false", "--set",
                   "metrics.histogram_every_steps=1"})
                .code,
            0)
      << log_of("stokerd");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(run_dir() + "/tensorboard"))
    EXPECT_TRUE(entry.is_directory()) << entry.path();
}

}  // namespace
}  // namespace stoker::test
