// StateDictMapping: which tensor of a file goes where in a model that begins with it, and what is left over
// on either side: key_mapping, exclude and strict of model.pretrained.
//
// Names are mapped first: the first of key_mapping whose `from` matches a file's name renames it.
// Then what matches a glob of exclude, on either side, is left out. What remains must agree;
// with strict: false, what only one side has need not.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/model_config.h"

namespace stoker::model {

struct StateDictMapping {
  struct Load {
    size_t tensor = 0;  // of the model
    std::string from;   // in the file
  };
  std::vector<Load> loads;
  // For people, a line a tensor: "blocks.0.qkv.bias F32 [576], from h.0.attn.bias".
  std::vector<std::string> loaded;
  std::vector<std::string> unexpected;  // of the file
  std::vector<std::string> missing;     // of the model
  std::vector<std::string> problems;    // all there are: then nothing may be loaded

  // kMismatch: the first problems and the number of all.
  Status status() const;
  // All of it, a line each.
  std::string report() const;
};

// `needed`: the model's tensors.
StateDictMapping map_state_dict(const std::vector<TensorSpec>& needed,
                                const checkpoint::TensorSource& file,
                                const config::PretrainedConfig& config);

// Whether a tensor of the one dtype is turned into the other without loss: halves into floats.
bool is_widening(DType from, DType to);

}  // namespace stoker::model
