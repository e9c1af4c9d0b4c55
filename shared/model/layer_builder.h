// add_layers: builds a chain of modules from the list of layers in the configuration.
//
// Threads: uses the default CPU generator.
// Errors:  kMismatch: a layer does not fit its input; reports the position, the requirement and the
//          input shape. kInvalidArgument: the arguments of a layer are invalid. Exceptions of
//          LibTorch are propagated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/model/sequential.h"

namespace stoker::model {

struct LayerContext {
  bool has_tokens = false;  // the input is token ids, so the first layer must be an embedding
  int64_t outputs = 0;      // default for the out_features of linear layers
};

// `input` is the shape of one sample before the first layer. Returns its shape after the last
// layer.
Result<std::vector<int64_t>> add_layers(const std::vector<config::Layer>& layers,
                                        const std::vector<int64_t>& input,
                                        const LayerContext& layer_context, Sequential& sequential);

// "[3, 32, 32]"
std::string format_shape(const std::vector<int64_t>& shape);

}  // namespace stoker::model
