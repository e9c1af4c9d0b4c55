#include "daemon/app/model_graph_builder.h"

#include <utility>

namespace stoker::app {
namespace {

// "Linear" for "torch::nn::LinearImpl"; "Block" for "stoker::model::(anonymous namespace)::Block".
std::string short_type(std::string type) {
  if (const size_t colon = type.rfind("::"); colon != std::string::npos) type.erase(0, colon + 2);
  constexpr std::string_view kImpl = "Impl";
  if (type.size() > kImpl.size() && type.ends_with(kImpl)) type.resize(type.size() - kImpl.size());
  return type;
}

std::vector<metrics::ModelGraph::Tensor> list_tensors(const torch::nn::Module& module) {
  std::vector<metrics::ModelGraph::Tensor> tensors;
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    tensors.push_back({item.key(), item.value().sizes().vec(), true, item.value().requires_grad()});
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    tensors.push_back({item.key(), item.value().sizes().vec(), false, false});
  return tensors;
}

}  // namespace

metrics::ModelGraph build_model_graph(const model::Model& model, const std::string& name) {
  metrics::ModelGraph graph{.name = name, .modules = {}};
  graph.modules.push_back({"", short_type(model.name()), list_tensors(model)});
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    graph.modules.push_back(
        {item.key(), short_type(item.value()->name()), list_tensors(*item.value())});
  return graph;
}

}  // namespace stoker::app
