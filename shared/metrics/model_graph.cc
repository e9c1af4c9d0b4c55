#include "shared/metrics/model_graph.h"

#include <algorithm>
#include <map>

#include "shared/metrics/protobuf_message.h"

namespace stoker::metrics {
namespace {

// GraphDef, VersionDef
constexpr uint32_t kNode = 1, kVersions = 4, kProducer = 1;
constexpr uint64_t kKnownProducer = 22;  // of the graphs that PyTorch writes
// NodeDef, and an entry of its map of attributes
constexpr uint32_t kName = 1, kOp = 2, kInput = 3, kAttr = 5, kKey = 1, kValue = 2;
// AttrValue, AttrValue.ListValue
constexpr uint32_t kList = 1, kString = 2, kInt = 3, kListShape = 7;
// TensorShapeProto, TensorShapeProto.Dim
constexpr uint32_t kDim = 2, kDimSize = 1;

std::string slashed(std::string path) {
  std::ranges::replace(path, '.', '/');
  return path;
}

class GraphEncoder {
 public:
  explicit GraphEncoder(const ModelGraph& graph) : graph_(graph) {
    for (const auto& module : graph.modules)
      if (!module.path.empty()) parts_[parent_of(module.path)].push_back(node_of(module));
  }

  std::string encode() {
    for (const auto& module : graph_.modules) add_module(module);
    whole_.message(kVersions, ProtobufMessage().varint(kProducer, kKnownProducer));
    return whole_.encoded();
  }

 private:
  static std::string parent_of(const std::string& path) {
    const size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
  }
  std::string scope_of(const std::string& path) const {
    return graph_.name + (path.empty() ? "" : '/' + slashed(path));
  }
  std::string node_of(const ModelGraph::Module& module) const {
    return scope_of(module.path) + '/' + module.type;
  }

  void add_module(const ModelGraph::Module& module) {
    std::vector<std::string> inputs;
    int64_t numbers = 0;
    for (const ModelGraph::Tensor& tensor : module.tensors) {
      inputs.push_back(scope_of(module.path) + '/' + tensor.name);
      add_tensor(tensor, inputs.back());
      int64_t elements = 1;
      for (const int64_t size : tensor.shape) elements *= size;
      if (tensor.is_parameter) numbers += elements;
    }
    const auto& parts = parts_[module.path];
    inputs.insert(inputs.end(), parts.begin(), parts.end());
    ProtobufMessage node = node_called(node_of(module), module.type);
    for (const std::string& input : inputs) node.bytes(kInput, input);
    if (numbers > 0)
      add_attribute(node, "parameters",
                    ProtobufMessage().varint(kInt, static_cast<uint64_t>(numbers)));
    whole_.message(kNode, node);
  }

  void add_tensor(const ModelGraph::Tensor& tensor, const std::string& name) {
    ProtobufMessage node = node_called(name, tensor.is_parameter ? "Parameter" : "Buffer");
    ProtobufMessage shape;
    for (const int64_t size : tensor.shape)
      shape.message(kDim, ProtobufMessage().varint(kDimSize, static_cast<uint64_t>(size)));
    add_attribute(node, "_output_shapes",
                  ProtobufMessage().message(kList, ProtobufMessage().message(kListShape, shape)));
    if (tensor.is_parameter && !tensor.is_trained)
      add_attribute(node, "attr", ProtobufMessage().bytes(kString, "frozen"));
    whole_.message(kNode, node);
  }

  static ProtobufMessage node_called(const std::string& name, const std::string& op) {
    return ProtobufMessage().bytes(kName, name).bytes(kOp, op);
  }
  static void add_attribute(ProtobufMessage& node, std::string_view key,
                            const ProtobufMessage& value) {
    node.message(kAttr, ProtobufMessage().bytes(kKey, key).message(kValue, value));
  }

  const ModelGraph& graph_;
  std::map<std::string, std::vector<std::string>> parts_;  // nodes of the modules right below
  ProtobufMessage whole_;
};

}  // namespace

std::string encode_graph(const ModelGraph& graph) { return GraphEncoder(graph).encode(); }

}  // namespace stoker::metrics
