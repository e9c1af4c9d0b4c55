// load_partial: what a file has of some tensors, where it has not all of them.
//
// Threads: the trainer's thread only.
// Errors:  kCorrupt, kIoError: some tensors may then be new and some old. LibTorch's exceptions pass
//          through.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/model/model.h"

namespace stoker::train {

// Loads each tensor that the file has under its name, in its shape and dtype, and leaves the others
// as they are. Whether that was all, on both sides; if not, the log says what was not.
Result<bool> load_partial(const model::NamedTensors& tensors,
                          const checkpoint::SafetensorsFile& file, const std::string& owner);

}  // namespace stoker::train
