// LoRA: matrices of low rank in addition to the weights of linear layers. A layer with an adapter computes
// W x + lora_alpha / r * B A dropout(x); A and B are trained, W is not. Names, initial values and the
// choice of layers are those of PEFT.
//
// Threads: as the model.
// Errors:  LibTorch's exceptions pass through add_adapter() and apply_lora().
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/model/model.h"

namespace stoker::model {

// A module that is no Linear, but whose own weight can have an adapter, as can the Linear layers in
// it, which are adapted with it.
class AdaptableProjection {
 public:
  virtual ~AdaptableProjection() = default;
  virtual at::Tensor projection() const = 0;  // [out_features, in_features]
};

// `output` of the module's own weight for `input`, plus that of its adapter, if it has one.
at::Tensor add_adapter(const torch::nn::Module& module, const at::Tensor& input,
                       const at::Tensor& output);

// Adds the adapters of config.lora, which is set. All other parameters no longer require a gradient,
// and are not in named_tensors(), except those of modules_to_save. Uses the default CPU generator.
// kInvalidArgument: a name of target_modules or modules_to_save matches no module, or one that cannot
// have an adapter.
Status apply_lora(Model& model, const config::ModelConfig& config);

// The parameters that load_pretrained() sets: all but the matrices that apply_lora() added.
NamedTensors pretrained_tensors(const Model& model);

// SHA-256 over names, dtypes, shapes and values of the tensors that are not in named_tensors(), sorted
// by name: equal for the same weights in a file of another format. Waits for the device.
std::string base_digest(const Model& model);

// Replaces the new adapter by that of the PEFT folder config.lora->path. kMismatch: lists tensors
// that are missing, unexpected or have another shape; the model is unchanged. Others as
// load_tensors().
Status load_adapter(Model& model, const config::ModelConfig& config);

}  // namespace stoker::model
