#include "shared/graph/graph_file.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/graph_text.h"

namespace stoker::fuzz {
namespace {

using graph::Argument;

// What the executor relies on: indices are valid, and a value is defined once, before it is used.
class Checker {
 public:
  Checker(const graph::GraphFile& file, const graph::Program& program)
      : file_(file), defined_(static_cast<size_t>(program.num_values)) {
    check(program.graph);
    for (const auto& [tensor, value] : program.updates) {
      check_invariant(tensor >= 0 && static_cast<size_t>(tensor) < file.tensors.size(),
                      "an update must be of a tensor of the table");
      check(value);
    }
  }

 private:
  void check(const graph::Graph& graph) {
    for (const int64_t input : graph.inputs) define(input);
    for (const graph::Node& node : graph.nodes) {
      for (const Argument& argument : node.arguments) check(argument);
      for (const auto& [name, argument] : node.keyword_arguments) check(argument);
      check_invariant(
          node.kind != graph::Node::Kind::kOperator || file_.operators.contains(node.name),
          "an operator must have a schema");
      for (const graph::Graph& part : node.graphs) check(part);
      for (const int64_t result : node.results) define(result);
    }
    for (const Argument& output : graph.outputs) check(output);
  }
  void define(int64_t value) {
    check_invariant(value >= 0 && static_cast<size_t>(value) < defined_.size(),
                    "a value must be in range");
    check_invariant(!defined_[static_cast<size_t>(value)], "a value must be defined once");
    defined_[static_cast<size_t>(value)] = true;
  }
  void check(const Argument& argument) {
    if (argument.kind == Argument::Kind::kValue)
      check_invariant(argument.integer >= 0 &&
                          static_cast<size_t>(argument.integer) < defined_.size() &&
                          defined_[static_cast<size_t>(argument.integer)],
                      "a value must be defined before it is used");
    if (argument.kind == Argument::Kind::kTensor)
      check_invariant(
          argument.integer >= 0 && static_cast<size_t>(argument.integer) < file_.tensors.size(),
          "a tensor must be in the table");
    for (const Argument& item : argument.items) check(item);
  }

  const graph::GraphFile& file_;
  std::vector<bool> defined_;
};

bool run(std::string_view input) {
  const auto file = graph::parse_graph_file(input, "graph.json");
  if (!check_status(file.status())) return false;
  if (reads_once()) return true;
  for (const graph::Program* const program : {&file->train, &file->eval, &file->predict})
    Checker(*file, *program);
  return true;
}

}  // namespace

const Format& graph_format() {
  static constexpr Format kFormat{.name = "graph", .run = run, .seeds = [] {
                                    return std::vector<std::string>{test::graph_text()};
                                  }};
  return kFormat;
}

}  // namespace stoker::fuzz
