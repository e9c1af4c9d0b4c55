// open_pretrained: opens the file or folder of model.pretrained.
//
// Threads:  pure functions.
// Errors:   kNotFound, kIoError, kCorrupt; kMismatch: a file of transformers without its config.json,
//           or a checkpoint with an adapter only; others as the readers of the formats.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/model_config.h"

namespace stoker::pretrained {

// A folder with config.json.
bool is_huggingface_folder(const std::string& path);

struct PretrainedTensors {
  std::unique_ptr<checkpoint::TensorSource> file;
  const checkpoint::HuggingFaceNames* maybe_names = nullptr;  // null: those of stoker
};

// A checkpoint directory (verified first), a .safetensors file, a file written by torch.save, or a
// Hugging Face folder. Those of image models can have the names of torchvision, timm or transformers,
// in the file or after key_mapping.
Result<PretrainedTensors> open_pretrained(const config::PretrainedConfig& pretrained,
                                          std::string_view model_name);

}  // namespace stoker::pretrained
