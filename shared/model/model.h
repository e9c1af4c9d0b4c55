// Model: a network that stoker trains; parameters and buffers are named as PyTorch and torchvision
// name theirs.
//
// Threads: as torch::nn::Module: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"

namespace stoker::model {

// What a model says of a batch in training: `auxiliary` is what a second head further down says of
// the same, undefined where there is none. Its loss counts by task.aux_loss_weight.
struct Outputs {
  at::Tensor logits;
  at::Tensor aux_logits;
};

class Model : public torch::nn::Module {
 public:
  // gpt lstm_lm: [batch, time] I64 -> logits [batch, time, vocab]. Others: floats [batch, …], or tokens
  // [batch, time] I64 -> [batch, outputs], or of each step [batch, time, outputs]. The task makes that.
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  // The same with what only training is for.
  virtual Outputs forward_with_aux(const at::Tensor& input) { return {forward(input), {}}; }
  // The same of sequences that were padded to one length: of each, `length` I64 [batch] steps are
  // real, from 0 to as many as there are, and what comes after them must not be seen in the answer to
  // those. A model that only looks back, or at one step, sees it in none of them.
  virtual at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& /*length*/) {
    return forward(input);
  }

  // Models over tokens: how many tokens forward() takes at most, and how many there are to choose
  // from. 0 for all others.
  virtual int64_t context() const { return 0; }
  virtual int64_t vocab() const { return 0; }
};
using ModelPtr = std::shared_ptr<Model>;

// Builds and initialises as PyTorch does, drawing from the default CPU generator (seed it first:
// torch::manual_seed). `sample` and `classes` are the data set's (dataset.h).
// kMismatch: model and data do not fit; says both sides. kInvalidArgument: the settings contradict
// each other. kOutOfMemory.
Result<ModelPtr> make_model(const config::ModelConfig& config,
                            const std::vector<TensorSpec>& sample, uint64_t classes);

// Parameters, then buffers, in registration order: what model.safetensors holds.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
NamedTensors named_tensors(const Model& model);

// SHA-256 over names, dtypes and shapes of named_tensors().
std::string digest(const Model& model);

// Takes the parameters whose names match one of `globs` ("blocks.0.*"; * also matches dots) out of
// training: they get no gradient. kInvalidArgument: a glob matches nothing, or nothing is left to
// train; the model is then unchanged.
Status freeze(Model& model, const std::vector<std::string>& globs);

}  // namespace stoker::model
