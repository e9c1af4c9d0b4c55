// load_partial(): loads the tensors that a file and a model have in common.
//
// Threads: the trainer thread only.
// Errors:  kCorrupt, kIoError: some tensors can then be loaded and others not. LibTorch's
//          exceptions pass through.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/model/model.h"

namespace stoker::train {

// Loads each tensor that the file contains with the same name, shape and dtype; the others are
// unchanged. Returns whether the file and `tensors` match completely; otherwise logs the
// differences.
Result<bool> load_partial(const model::NamedTensors& tensors,
                          const checkpoint::SafetensorsFile& file, const std::string& owner);

}  // namespace stoker::train
