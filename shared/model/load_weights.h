// Loading tensors by name from files: all of them, or a list of what differs.
//
// Threads: one thread; nobody else may use the tensors meanwhile.
// Errors:  kMismatch: names, shapes or dtypes differ; the first five differences and their number,
//          nothing is changed. kCorrupt, kIoError, kNotFound from reading: some tensors may then be
//          new and some old, so the model must not be used. kOutOfMemory.
#pragma once

#include <string>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/config/model_config.h"
#include "shared/model/model.h"
#include "shared/model/state_dict_mapping.h"

namespace stoker::model {

// `file` must hold exactly `tensors`. `owner` ("the model") is for messages. Tensors on the CPU are
// read in place.
Status load_tensors(const NamedTensors& tensors, const checkpoint::SafetensorsFile& file,
                    const std::string& owner);

// All parameters and buffers.
Status load_weights(Model& model, const checkpoint::SafetensorsFile& file);

// model.pretrained: a checkpoint directory (verified first), a .safetensors file, or one of
// torch.save. `plan` says what was made of it, also where the status is kMismatch. Nothing is
// changed then.
Status load_pretrained(Model& model, const config::PretrainedConfig& config,
                       StateDictMapping& mapping);

}  // namespace stoker::model
