// Model: base class of the networks that stoker trains. Parameters and buffers have the same names
// as in PyTorch and torchvision.
//
// Threads: as torch::nn::Module: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"
#include "shared/config/training_config.h"
#include "shared/model/key_value_cache.h"

namespace stoker::model {

// Outputs of a model in training. `aux_logits` is the output of an auxiliary head, undefined if
// there is none; its loss is weighted by task.aux_loss_weight.
struct Outputs {
  at::Tensor logits;
  at::Tensor aux_logits;
};

// The input of a model's last layer [batch, time, width] and the weight of this layer, which is linear
// and has no bias. Undefined: the last layer is another one.
struct HeadInput {
  at::Tensor features;
  at::Tensor weight;
};

// The loss of a batch as a sum over values (samples, labels, tokens) and their count. The loss of a step
// of several batches is the sum of their sums divided by the sum of their counts, which is not the mean
// of their means if the counts differ.
struct LossTerm {
  LossTerm(at::Tensor batch_mean = {}, at::Tensor count = {})
      : mean(std::move(batch_mean)), maybe_count(std::move(count)) {}

  at::Tensor mean;  // sum / count, an F32 scalar with gradient; the sum if the count is 0
  // A scalar without gradient on the device of the batch: the number of values, or the sum of their
  // weights. Undefined: the same for all batches (Model::counts_per_sample(), Task::counts_per_sample()).
  at::Tensor maybe_count;
};

// Names and tensors in an order: of a model, or of a batch.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// What a model with its own loss computes of a batch.
struct StepOutput {
  LossTerm loss;
  // F64 [metrics] without gradient, on the device of the batch: Model::step_metrics() are their quotients,
  // over any number of batches. Undefined: there are none.
  at::Tensor metric_sums = {}, metric_counts = {};
};
inline constexpr size_t kMaxStepMetrics = 32;

class Model : public torch::nn::Module {
 public:
  // gpt, gpt2, llama, lstm_lm: [batch, time] I64 -> logits [batch, time, vocab]. Others: floats [batch, …] or
  // tokens [batch, time] I64 -> [batch, outputs], or [batch, time, outputs] for an output per time
  // step. The task converts batches to these inputs.
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  // As forward(), with the outputs that only training needs.
  virtual Outputs forward_with_aux(const at::Tensor& input) { return {forward(input), {}}; }
  // As forward() without the last layer, so that a loss can be computed without the logits. Undefined
  // if the model does not support that.
  virtual HeadInput forward_features(const at::Tensor& /*input*/) { return {}; }
  // As forward() and forward_features(), for samples of several documents: no output depends on
  // another document. `position_ids` I64 [batch, time]: the position of each token in its document,
  // from 0, which begins a document, to time - 1. gpt, gpt2 and llama; others throw.
  virtual at::Tensor forward_packed(const at::Tensor& input, const at::Tensor& position_ids);
  virtual HeadInput packed_features(const at::Tensor& /*input*/,
                                    const at::Tensor& /*position_ids*/) {
    return {};
  }
  // As forward(), for sequences padded to a common length. `length` I64 [batch] is the number of
  // valid time steps of each sequence, from 0 to the length of the input. Padding must not affect
  // the outputs at valid steps. The default is correct for models that are causal or process each
  // time step separately.
  virtual at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& /*length*/) {
    return forward(input);
  }

  // For models over tokens, in eval mode: the logits of the token after `tokens` [batch, time],
  // [batch, vocab]. `cache` is that of the call before, whose tokens these begin with, or a new one;
  // a model without attention ignores it.
  virtual at::Tensor next_logits(const at::Tensor& tokens, KeyValueCache& /*cache*/) {
    return forward(tokens).select(1, -1);
  }

  // For models that compute their own loss (config::ModelConfig::has_loss()); the task then only
  // evaluates. `fields`: the tensors of a sample in their order, with a leading batch dimension: `input`
  // F32, images normalized; `tokens` I64; others as in the dataset. In training mode with gradient and
  // with the buffers updated.
  virtual StepOutput step(const NamedTensors& fields);
  // The names of further losses and of metrics of step(), at most kMaxStepMetrics.
  virtual std::vector<std::string> step_metrics() const { return {}; }
  // As Task::counts_per_sample(), of step().
  virtual int64_t counts_per_sample() const { return 0; }
  // Further names of parameters that the model has under several: name -> the registered name.
  virtual std::map<std::string, std::string> tied_parameters() const { return {}; }
  // Checks that the model can train with these settings and computes what it should. kMismatch.
  virtual Status prepare_training(const config::TrainConfig& /*config*/, c10::Device /*device*/) {
    return {};
  }
  // Why a step cannot be captured in a CUDA graph; empty: nothing is known that forbids it.
  virtual std::string capture_obstacle() const { return {}; }

  // With model.lora, set by apply_lora(); otherwise null.
  struct Adapter {
    std::set<std::string> base;  // the parameters that are not trained
    double dropout = 0;
  };
  const Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }
  double adapter_dropout() const { return adapter_ ? adapter_->dropout : 0; }
  void set_adapter(Adapter adapter) { adapter_ = std::move(adapter); }
  // The name of the module with the outputs; empty if there is none, or it is not known.
  virtual std::string output_layer() const { return {}; }
  // Whether the outputs are computed with the weights of the embedding.
  virtual bool ties_output() const { return false; }

  // For models over tokens: the maximum number of tokens that forward() accepts, and the size of
  // the vocabulary. 0 for all others.
  virtual int64_t context() const { return 0; }
  virtual int64_t vocab() const { return 0; }

 private:
  std::optional<Adapter> adapter_;
};
using ModelPtr = std::shared_ptr<Model>;

// Builds and initializes a model as PyTorch does, then by model.init, using the default CPU
// generator (call torch::manual_seed first). `sample` and `classes` describe the dataset (dataset.h).
// kMismatch: model and data are incompatible; names both sides. kInvalidArgument: the arguments
// contradict each other, or a pattern of model.init applies to no parameter. kOutOfMemory.
Result<ModelPtr> make_model(const config::ModelConfig& config,
                            const std::vector<TensorSpec>& sample, uint64_t classes);

// Parameters, then buffers, in registration order: the contents of model.safetensors. With model.lora
// those of the adapter alone: without the pretrained weights that it belongs to.
NamedTensors named_tensors(const Model& model);

// SHA-256 over names, dtypes and shapes of named_tensors().
std::string digest(const Model& model);

// Disables the gradient of all parameters whose names match one of `globs` ("blocks.0.*"; * also
// matches dots). Returns the names of those that were trainable before, unlike the fixed tables of
// some models. kInvalidArgument: a glob matches nothing, or no trainable parameter is left; the model
// is then unchanged.
Result<std::set<std::string>> freeze(Model& model, const std::vector<std::string>& globs);

}  // namespace stoker::model
