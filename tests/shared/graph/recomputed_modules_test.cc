// Which nodes become one that is recomputed.
#include "shared/graph/recomputed_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::graph {
namespace {

using ::testing::ElementsAre;

Argument value(int64_t index) {
  return {.kind = Argument::Kind::kValue, .integer = index, .text = {}, .items = {}};
}
Argument tensor(int64_t index) {
  return {.kind = Argument::Kind::kTensor, .integer = index, .text = {}, .items = {}};
}
Node node(const std::string& module, const std::string& op, std::vector<Argument> arguments,
          int64_t result) {
  Node made;
  made.kind = op.starts_with("aten::") ? Node::Kind::kOperator : Node::Kind::kSize;
  made.name = op;
  made.module = module;
  made.arguments = std::move(arguments);
  made.results = {result};
  return made;
}

const std::map<std::string, std::string> kOperators = {
    {"aten::linear", "aten::linear(Tensor input, Tensor weight) -> Tensor"},
    {"aten::relu", "aten::relu(Tensor self) -> Tensor"},
    {"aten::chunk", "aten::chunk(Tensor(a -> *) self, int chunks) -> Tensor(a)[]"},
    {"aten::sym_size.int", "aten::sym_size.int(Tensor self, int dim) -> SymInt"}};

Program program_of(std::vector<Node> nodes, int64_t num_values, int64_t output) {
  Program program;
  program.num_values = num_values;
  program.graph.inputs = {0};
  program.graph.nodes = std::move(nodes);
  program.graph.outputs = {value(output)};
  return program;
}

std::vector<Node::Kind> kinds(const Graph& graph) {
  std::vector<Node::Kind> all;
  for (const Node& each : graph.nodes) all.push_back(each.kind);
  return all;
}

TEST(FoldModules, FoldsNodesOfAModule) {
  Program program = program_of({node("a", "aten::relu", {value(0)}, 1),
                                node("blocks.1.fc", "aten::linear", {value(1), tensor(7)}, 2),
                                node("", "aten::sym_size.int", {value(0)}, 3),
                                node("blocks.1.act", "aten::linear", {value(2), value(0)}, 4),
                                node("blocks.10", "aten::relu", {value(4)}, 5)},
                               6, 5);
  fold_modules(program, {"blocks.1"}, kOperators);
  EXPECT_THAT(kinds(program.graph), ElementsAre(Node::Kind::kOperator, Node::Kind::kOperator,
                                                Node::Kind::kRecompute, Node::Kind::kOperator))
      << "a number in between comes first; blocks.10 is another module";
  const Node& folded = program.graph.nodes[2];
  EXPECT_THAT(folded.results, ElementsAre(4));
  ASSERT_EQ(folded.arguments.size(), 3u);
  EXPECT_EQ(folded.arguments[0].integer, 1);
  EXPECT_EQ(folded.arguments[1].kind, Argument::Kind::kTensor) << "gets a gradient";
  EXPECT_EQ(folded.arguments[2].integer, 0);
  const Graph& part = folded.graphs.at(0);
  EXPECT_THAT(part.inputs, ElementsAre(6, 7, 8));
  EXPECT_EQ(program.num_values, 9);
  EXPECT_EQ(part.nodes[0].arguments[1].kind, Argument::Kind::kValue);
  EXPECT_EQ(part.nodes[0].arguments[1].integer, 7);
  EXPECT_EQ(part.nodes[1].arguments[0].integer, 2) << "a value of the part";
  EXPECT_EQ(part.outputs[0].integer, 4);
}

TEST(FoldModules, LeavesModulesWithSeveralResults) {
  Program program =
      program_of({node("b", "aten::relu", {value(0)}, 1), node("b", "aten::relu", {value(1)}, 2),
                  node("", "aten::linear", {value(1), value(2)}, 3)},
                 4, 3);
  fold_modules(program, {"b"}, kOperators);
  EXPECT_EQ(program.graph.nodes.size(), 3u);
  Program list = program_of(
      {node("b", "aten::chunk", {value(0)}, 1), node("", "getitem", {value(1), value(0)}, 2)}, 3,
      2);
  fold_modules(list, {"b"}, kOperators);
  EXPECT_EQ(list.graph.nodes[0].kind, Node::Kind::kOperator) << "a list of tensors";
}

}  // namespace
}  // namespace stoker::graph
