// peft_settings: the text of adapter_config.json for the adapter of a checkpoint.
//
// Threads: pure function.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/manifest.h"
#include "shared/config/model_config.h"

namespace stoker::pretrained {

// `base`: of the checkpoint; `tensors`: those of the adapter. target_modules and modules_to_save list
// the modules that the adapter has, by their names in Hugging Face's model. kMismatch: the adapter has
// another rank than `base`.
Result<std::string> peft_settings(const config::ModelConfig& model,
                                  const checkpoint::BaseWeights& base,
                                  const std::vector<TensorSpec>& tensors);

}  // namespace stoker::pretrained
