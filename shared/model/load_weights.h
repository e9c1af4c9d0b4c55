// Loads tensors by name from files, or reports how the file and the model differ.
//
// Threads: one thread; the tensors must not be used concurrently.
// Errors:  kMismatch: names, shapes or dtypes differ; reports the first five differences and the
//          number of the others, and leaves the tensors unchanged. kCorrupt, kIoError, kNotFound
//          from reading: some tensors can already be overwritten, so the model must not be used.
//          kOutOfMemory.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/sharded_tensors.h"
#include "shared/config/model_config.h"
#include "shared/model/model.h"
#include "shared/pretrained/state_dict_mapping.h"

namespace stoker::model {

std::vector<TensorSpec> to_tensor_specs(const NamedTensors& tensors);

// `file` must contain exactly `tensors`. `owner` ("the model") is used in messages. Tensors on the
// CPU are read in place.
Status load_tensors(const NamedTensors& tensors, const checkpoint::TensorRangeSource& file,
                    const std::string& owner);
// The same for a part of the tensors of a file, of which some are ranges. `complete`: the tensors that
// the file must contain exactly.
Status load_tensor_ranges(const NamedTensors& tensors, const checkpoint::TensorRanges& ranges,
                          const std::vector<TensorSpec>& complete,
                          const checkpoint::TensorRangeSource& file, const std::string& owner);
// One of them, into a tensor of the same dtype.
Status read_tensor_range(const std::string& name, const at::Tensor& tensor,
                         const checkpoint::TensorRanges& ranges,
                         const checkpoint::TensorRangeSource& file);

// Loads all parameters and buffers.
Status load_weights(Model& model, const checkpoint::SafetensorsFile& file);

// Loads `config.pretrained`, which is set: a checkpoint directory (verified first), a .safetensors
// file, a file written by torch.save, or a Hugging Face folder, whose config.json must have the
// settings of the model. Fills `mapping` also if the result is kMismatch, which leaves the model
// unchanged. kInvalidArgument: the folder is of a model that is not supported. kCorrupt: also if
// two copies of a tied weight differ.
Status load_pretrained(Model& model, const config::ModelConfig& config,
                       pretrained::StateDictMapping& mapping);

}  // namespace stoker::model
