// ParameterKinds: which parameters optimizer.param_groups mean by `kind`.
//
//   bias:      the last part of the name begins with "bias"
//   norm:      weight and bias of a layer whose weight has at most one dimension, which normalization layers have
//   vector:    at most one dimension, as timm and nanoGPT exclude from weight decay
//   embedding: weights of embedding layers, and learned positions and class tokens
//
// Threads: immutable after construction; any.
#pragma once

#include <set>
#include <string>

#include "shared/config/training_config.h"
#include "shared/model/model.h"

namespace stoker::train {

// The names of the parameters of the kind `embedding`. An exported model does not tell which of its layers are
// embeddings.
std::set<std::string> embedding_parameters(const model::Model& model);

class ParameterKinds {
 public:
  // `parameters`: those of the model by name. `embeddings`: as embedding_parameters().
  ParameterKinds(const model::NamedTensors& parameters, const std::set<std::string>& embeddings);

  // `parameter` is one of the parameters.
  bool is(config::ParamKind kind, const std::string& name, const at::Tensor& parameter) const;

 private:
  std::set<std::string> norms_;  // names of layers with '.' at the end
  const std::set<std::string>& embeddings_;
};

}  // namespace stoker::train
