// open_pretrained_file: opens the file or folder of model.pretrained.path.
//
// Threads:  pure functions.
// Errors:   kNotFound, kIoError, kCorrupt; others as the readers of the formats.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::pretrained {

// A folder with config.json.
bool is_huggingface_folder(const std::string& path);

// A checkpoint directory (verified first), a .safetensors file, a file written by torch.save, or a
// Hugging Face folder.
Result<std::unique_ptr<checkpoint::TensorSource>> open_pretrained_file(const std::string& path);

}  // namespace stoker::pretrained
