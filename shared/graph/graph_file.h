// GraphFile: graph.json of a folder written by stoker-export (python/): the programs of a PyTorch module with its
// loss as operators, the table of their tensors, and what a step must compute.
//
// The file is data: its operators are on the list python/stoker_export/operators.txt, which has none that open files,
// change the memory of tensors or skip checks. Their arguments are checked against schemas by shared/model/graph_program.h.
//
// Threads: pure functions.
// Format:  kGraphFormat; python/stoker_export/graph.py.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::graph {

inline constexpr int64_t kGraphFormat = 1;
inline constexpr const char* kGraphName = "graph.json";
inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kSelfTestName = "self_test.safetensors";
inline constexpr uint64_t kMaxGraphBytes = 64 << 20;
inline constexpr size_t kMaxMetrics = 32;

struct Argument {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kDtype,  // `text`: "float32"
    kDevice,
    kLayout,
    kMemoryFormat,
    kValue,   // `integer`: of the program
    kTensor,  // `integer`: of the table
    kList
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<Argument> items;
};

struct Node;

// Of a program, or a part of it that a node runs. Values that it uses are its inputs, or results of its nodes.
struct Graph {
  std::vector<int64_t> inputs;  // values
  std::vector<Node> nodes;
  std::vector<Argument> outputs;
};

struct Node {
  enum class Kind {
    kOperator,
    kSize,            // a function of numbers: "mul"
    kCond,            // arguments: predicate, operands; graphs: if true, if false
    kSetGradEnabled,  // arguments: enabled, operands; one graph
    kAutocast,        // arguments: enabled, dtype or none, operands; one graph
    kRecompute        // arguments: operands; one graph; not in files: recomputed_modules.h
  };
  Kind kind = Kind::kOperator;
  std::string name;    // "aten::add.Tensor"; of a function of numbers
  std::string module;  // that computes it: "blocks.0.mlp"; for messages
  std::vector<Argument> arguments;
  std::vector<std::pair<std::string, Argument>> keyword_arguments;
  std::vector<int64_t> results;  // values
  std::vector<Graph> graphs;
};

struct Program {
  std::vector<TensorSpec> inputs;  // of one sample; graph.inputs are their values
  int64_t num_values = 0;
  Graph graph;
  // Buffers that get a new value at the end: index in the table, value.
  std::vector<std::pair<int64_t, Argument>> updates;
};

struct TableEntry {
  enum class Kind { kParameter, kBuffer, kConstant };
  TensorSpec spec;
  Kind kind = Kind::kParameter;
  bool requires_grad = false;
  bool is_persistent = false;  // in the state_dict
};

// A tensor that the self-test computed, and how far it may be from it, as an L2 norm.
struct TestedTensor {
  std::string sha256;     // of its bytes
  double norm = 0;        // L2; elements that are not finite count as 0
  double projection = 0;  // on a fixed pattern of signs: graph_self_test.h
  double bound = 0;
};

struct SelfTest {
  uint64_t seed = 0;
  TestedTensor loss, eval_loss;
  std::map<std::string, std::optional<TestedTensor>> gradients;  // nullopt: none
  std::map<std::string, TestedTensor> buffers;
  std::vector<TestedTensor> outputs;
};

struct GraphFile {
  std::string torch;  // version that exported it
  int64_t min_batch = 1;
  std::optional<int64_t> max_batch;
  size_t num_inputs = 1;  // of predict; the other inputs of train and eval are targets
  // The parameters of forward(), for the inputs of train and eval. Empty: these have the order of a sample.
  std::vector<std::string> fields;
  // Of each input of train the least length of its second dimension, the steps of a sequence, which is free up to that of its
  // spec; 0: it is fixed. Empty: all are fixed.
  std::vector<int64_t> min_steps;
  std::vector<std::string> metrics;  // further losses and metrics; the rows of a metric_table.h
  std::vector<TableEntry> tensors;
  std::map<std::string, std::string>
      tied;  // further names of tensors: name -> the one in the table
  std::map<std::string, std::string> operators;  // name -> the schema it was exported with
  std::vector<std::string> recomputed;           // modules whose activations Python does not store
  // train and eval return the loss, or its sum and count, then the sum and the count of each of `metrics`;
  // predict the outputs.
  Program train, eval, predict;
  // Of each output of predict, whether its second dimension is that of the steps of the input. Empty: unknown.
  std::vector<bool> per_step;
  SelfTest self_test;
  std::string weights_sha256, self_test_sha256;
};

// kCorrupt: not such a file; one line with `path` and the place, such as "programs.train.nodes[3]". kMismatch: of
// another format. After success every value is defined once, and before it is used; all indices are valid; every operator
// has a schema and is allowed.
Result<GraphFile> parse_graph_file(std::string_view json, const std::string& path);

}  // namespace stoker::graph
