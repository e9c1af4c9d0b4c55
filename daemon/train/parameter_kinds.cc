#include "daemon/train/parameter_kinds.h"

#include <string_view>

#include <torch/nn/modules/embedding.h>

namespace stoker::train {
namespace {

// "blocks.0.ln." of "blocks.0.ln.weight"; empty of "weight".
std::string layer_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }
std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

}  // namespace

std::set<std::string> embedding_parameters(const model::Model& model) {
  std::set<std::string> names;
  for (const auto& module : model.named_modules())
    if (module.value()->as<torch::nn::Embedding>() != nullptr)
      names.insert(module.key().empty() ? "weight" : module.key() + ".weight");
  for (const auto& parameter : model.named_parameters())
    if (const auto last = last_part(parameter.key());
        last == "class_token" || last == "pos_embedding")
      names.insert(parameter.key());
  return names;
}

ParameterKinds::ParameterKinds(const model::NamedTensors& parameters,
                               const std::set<std::string>& embeddings)
    : embeddings_(embeddings) {
  for (const auto& [name, parameter] : parameters)
    if (last_part(name) == "weight" && parameter.dim() <= 1) norms_.insert(layer_of(name));
}

bool ParameterKinds::is(config::ParamKind kind, const std::string& name,
                        const at::Tensor& parameter) const {
  switch (kind) {
    case config::ParamKind::kBias:
      return last_part(name).starts_with("bias");
    case config::ParamKind::kNorm:
      return norms_.contains(layer_of(name));
    case config::ParamKind::kVector:
      return parameter.dim() <= 1;
    case config::ParamKind::kEmbedding:
      return embeddings_.contains(name);
  }
  return false;
}

}  // namespace stoker::train
