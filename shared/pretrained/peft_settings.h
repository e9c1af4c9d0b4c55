// peft_settings: the text of adapter_config.json for the adapter of a checkpoint.
//
// Threads: pure function.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"

namespace stoker::pretrained {

// `model.lora` is set; `tensors`: those of the adapter. target_modules and modules_to_save list the
// modules that the adapter has, by their names in Hugging Face's model. kMismatch: the settings have
// another rank than the adapter.
Result<std::string> peft_settings(const config::ModelConfig& model,
                                  const std::vector<TensorSpec>& tensors);

}  // namespace stoker::pretrained
