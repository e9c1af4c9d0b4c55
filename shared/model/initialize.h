// initialize(): replaces the initial values of a model's parameters by those of model.init:
// functions of torch.nn.init, with the same random numbers.
//
// Threads: uses the default CPU generator.
// Errors:  kInvalidArgument: a pattern applies to no parameter, or its function does not support the
//          shape of one. Exceptions of LibTorch are propagated.
#pragma once

#include <vector>

#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/model/model.h"

namespace stoker::model {

// In the order of the parameters. Parameters that no rule matches are unchanged.
Status initialize(Model& model, const std::vector<config::InitRule>& rules);

}  // namespace stoker::model
