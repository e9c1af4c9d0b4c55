// Validation of user-defined models (plugin) before training starts, and what they share (plugin, exported).
//
// Threads: as the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include "shared/base/status.h"
#include "shared/model/model.h"
#include "shared/model/model_factories.h"

namespace stoker::model {

// The inputs and outputs that the data requires of a model.
struct ModelContext {
  std::vector<int64_t> input;  // shape of one sample; [tokens] for tokens, without the target
  bool has_tokens = false;
  bool is_predicting = false;        // predicts the next token at each position
  bool has_per_step_labels = false;  // one label per time step, not per sample
  // Height and width of a mask: outputs are [outputs, height, width].
  std::vector<int64_t> pixels;
  int64_t outputs = 0;
  Status has_outputs = {};  // why `outputs` is 0: the data has neither classes nor a target
};

// kMismatch: the data has neither input nor tokens in a supported shape.
Result<ModelContext> make_model_context(std::optional<int64_t> num_classes, const Samples& sample,
                                        uint64_t classes);

// Runs the model once on zeros in eval mode, and leaves it in train mode. kMismatch, without the
// name of the model: there is no trainable parameter, a tensor has a dtype or device that training
// or checkpoints do not support, a tensor is registered under two names, or the output shape
// differs (reports both shapes). kInvalidArgument: forward() throws; contains the exception text.
Status validate_user_model(Model& model, const ModelContext& model_context);
// The part of it about parameters and buffers.
Status validate_tensors(const Model& model);

// Registers a tensor under a PyTorch name ("layer1.0.conv1.weight"), in modules that are created as
// needed. A parameter keeps its requires_grad.
void register_tensor(torch::nn::Module& root, const std::string& name, const at::Tensor& tensor,
                     bool is_parameter);

// `values` [batch, steps, …], extended by `padding` to `steps` if it has fewer: for programs with a
// fixed number of steps, because batches are padded to their longest sequence only. Contiguous.
at::Tensor extend_steps(const at::Tensor& values, int64_t steps, double padding);

// The loss of a batch from its sum and count, two scalars; without values 0, also its gradient.
LossTerm loss_of(const at::Tensor& sum, const at::Tensor& count);
// Appends a metric, two scalars. The names of all have the order of Model::step_metrics().
void add_metric(const std::string& name, const at::Tensor& sum, const at::Tensor& count,
                StepOutput& step);

// An exception of user code as Status: kInvalidArgument, because the user can fix it, or
// kOutOfMemory. The message is `what`, a colon and the first line of the exception text.
Status user_model_error(const c10::Error& error, std::string_view what);

// Prefixes the message with model.path, and with the path unless the message contains it.
Status with_model_path(const Status& status, const std::string& path);

}  // namespace stoker::model
