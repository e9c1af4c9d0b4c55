// layer_lr_scales(): learning rate factors of optimizer.layer_decay, as of timm's
// param_groups_layer_decay: the layers are the embeddings, each block, and the output layer; the
// norm after the last block belongs to that block. The last layer has the factor 1, and each other
// layer `decay` times that of the next one.
//
// Threads: pure function.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/model/model.h"

namespace stoker::train {

using LrScales = std::map<std::string, double>;

// By the names of all parameters of the model, also of those that are not trained. Empty without `decay`.
// kInvalidArgument: one belongs to no known layer.
Result<LrScales> layer_lr_scales(const model::Model& model, std::optional<double> decay);

}  // namespace stoker::train
