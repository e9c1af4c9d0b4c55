// ModelGraph: what a model is made of, for TensorBoard's page of graphs: modules in modules, with
// the shapes of their tensors. Its lines lead from a part to what it is a part of; they are not the
// way of the data.
//
// Threads: values; functions of their arguments.
// Format:  tensorflow.GraphDef; field numbers are those of graph.proto, node_def.proto,
//          attr_value.proto and tensor_shape.proto.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::metrics {

struct ModelGraph {
  struct Tensor {
    std::string name;  // in its module: "weight"
    std::vector<int64_t> shape;
    bool is_parameter = true;  // else a buffer
    bool is_trained = true;
  };
  struct Module {
    std::string path;  // "blocks.0.qkv"; empty: the model itself
    std::string type;  // "Linear"
    std::vector<Tensor> tensors;
  };
  std::string name;             // of the model
  std::vector<Module> modules;  // the model itself first, each before its parts
};

// The bytes of a GraphDef.
std::string encode_graph(const ModelGraph& graph);

}  // namespace stoker::metrics
