// add_layers: from a list of layers in the configuration to modules in a chain.
//
// Threads: draws from the default CPU generator.
// Errors:  kMismatch: a layer does not fit what it is given: its position, what it needs, and the
//          shape that it is given. kInvalidArgument: its settings make no layer. LibTorch's
//          exceptions pass through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/model/sequential.h"

namespace stoker::model {

struct LayerContext {
  bool has_tokens = false;  // the input is tokens: an embedding comes first
  int64_t outputs = 0;      // of a linear layer that does not say how many
};

// The shape of one sample after the last of `layers`, given the one before the first.
Result<std::vector<int64_t>> add_layers(const std::vector<config::Layer>& layers,
                                        const std::vector<int64_t>& input,
                                        const LayerContext& layer_context, Sequential& sequential);

// "[3, 32, 32]"
std::string format_shape(const std::vector<int64_t>& shape);

}  // namespace stoker::model
