// The graph of a traced forward pass: operations, their scopes, edges and shapes.
#include "daemon/train/graph_tracer.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/image_config.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using metrics::GraphNode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class GraphTracerTest : public TrainerTest {
 protected:
  TracedGraph graph_of(const config::Config& config) {
    Session run(config, fresh());
    EXPECT_TRUE(run.train().ok());
    EXPECT_EQ(run.graphs_.size(), 1u) << "of the first step only";
    return run.graphs_.empty() ? TracedGraph() : std::move(run.graphs_.front());
  }
  static const GraphNode& node(const TracedGraph& graph, const std::string& name) {
    const auto found = std::ranges::find(graph.nodes, name, &GraphNode::name);
    EXPECT_NE(found, graph.nodes.end()) << name;
    static const GraphNode none;
    return found == graph.nodes.end() ? none : *found;
  }
  // Whether data flows from one node to the other.
  static bool leads_to(const TracedGraph& graph, const std::string& from, const std::string& to) {
    if (from == to) return true;
    return std::ranges::any_of(node(graph, to).inputs, [&](const std::string& input) {
      return leads_to(graph, from, input.substr(0, input.find(':')));
    });
  }
  static std::vector<std::string> names(const TracedGraph& graph) {
    std::vector<std::string> all;
    for (const GraphNode& node : graph.nodes) all.push_back(node.name);
    return all;
  }
};

TEST_F(GraphTracerTest, RecordsOperationsFromBatchToLoss) {
  auto config = small_config(2);
  mlp_of(config).dropout = 0;
  const TracedGraph graph = graph_of(config);
  const GraphNode& first = node(graph, "model/0/linear");
  EXPECT_EQ(first.type, "linear");
  EXPECT_THAT(first.inputs, Contains("model/0/weight"));
  EXPECT_THAT(first.inputs, Contains("model/0/bias"));
  EXPECT_THAT(first.output_shapes, ElementsAre(std::vector<int64_t>{4, 16}));
  EXPECT_EQ(node(graph, "batch/input").type, "F32");
  EXPECT_THAT(node(graph, "batch/input").output_shapes, ElementsAre(std::vector<int64_t>{4, 8}));
  EXPECT_THAT(node(graph, graph.loss).output_shapes, ElementsAre(std::vector<int64_t>{}));
  EXPECT_THAT(graph.loss, HasSubstr("loss/"));
  for (const char* const source : {"batch/input", "batch/target", "model/0/weight"})
    EXPECT_TRUE(leads_to(graph, source, graph.loss)) << source;
}

TEST_F(GraphTracerTest, OmitsTrainingMetricAndMarksFrozenParameters) {
  auto config = small_config(2);
  config.model.freeze = {"0.weight"};
  const TracedGraph graph = graph_of(config);
  EXPECT_THAT(names(graph), testing::Not(testing::Contains(HasSubstr("/abs"))));
  const auto& attributes = node(graph, "model/0/weight").attributes;
  ASSERT_EQ(attributes.size(), 1u);
  EXPECT_EQ(std::get<std::string>(attributes[0].second), "frozen");
  EXPECT_TRUE(node(graph, "model/0/bias").attributes.empty());
}

// Operations without parameters belong to the module around those whose results they take.
TEST_F(GraphTracerTest, AssignsOperationsBetweenModulesToTheirScope) {
  const TracedGraph graph = graph_of(with_images(small_config(1)));
  const auto all = names(graph);
  const auto is_in = [&](const std::string& scope) {
    return std::ranges::any_of(
        all, [&](const std::string& name) { return name.starts_with(scope + "/"); });
  };
  EXPECT_TRUE(is_in("batch"));
  EXPECT_TRUE(is_in("loss"));
  EXPECT_TRUE(is_in("model"));
  for (const GraphNode& each : graph.nodes)
    for (const std::string& input : each.inputs)
      EXPECT_THAT(all, Contains(input.substr(0, input.find(':')))) << each.name;
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << "unique names";
}

TEST_F(GraphTracerTest, DoesNotChangeTraining) {
  auto config = small_config(4);
  std::vector<std::string> hashes;
  for (const bool is_traced : {true, false}) {
    config.metrics.tensorboard = is_traced;
    Session run(config, fresh());
    ASSERT_TRUE(run.train().ok());
    EXPECT_EQ(run.graphs_.size(), is_traced ? 1u : 0u);
    hashes.push_back(run.model_sha256());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(GraphTracerTest, TracesNewRunsOnly) {
  {
    Session run(small_config(2), root_);
    ASSERT_TRUE(run.train().ok());
  }
  Session rest(small_config(4), root_);
  ASSERT_TRUE(rest.train().ok());
  EXPECT_TRUE(rest.graphs_.empty());
}

}  // namespace
}  // namespace stoker::train
