// check_model: what is wrong between the settings of the model.
//
// Threads: any.
#pragma once

#include "shared/config/given_keys.h"
#include "shared/config/mistakes.h"
#include "shared/config/model_config.h"

namespace stoker::config {

// Says nothing about keys that have a mistake already.
void check_model(const ModelConfig& model, const GivenKeys& given, Mistakes& mistakes);

}  // namespace stoker::config
