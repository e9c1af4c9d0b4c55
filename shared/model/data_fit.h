// DataFit: what a model must know of the data it is made for, and whether the two go together.
//
// Threads: pure functions.
// Errors:  kMismatch, naming both sides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"

namespace stoker::model {

const TensorSpec* find_component(const std::vector<TensorSpec>& sample, const std::string& name);

// "tokens U8 [129]" or "input F32 [3, 32, 32], label I64 []".
std::string describe(const std::vector<TensorSpec>& sample);

// The sample's "input"; `min_side` > 0 also asks for a picture [channels, height, width] whose
// sides are at least that.
Result<TensorSpec> input_of(const std::vector<TensorSpec>& sample, const std::string& model,
                            int64_t min_side);

// How many outputs the model has: model.outputs, or what the data has (classes, or width of the
// target).
Result<int64_t> outputs_for(const config::ModelConfig& config,
                            const std::vector<TensorSpec>& sample, uint64_t classes);

// For models over tokens: the sample's `tokens` fit model.context, and the data's (`classes`, where
// that is known) model.vocab.
Status check_tokens(const config::ModelConfig& config, const std::vector<TensorSpec>& sample,
                    uint64_t classes, const std::string& model);

}  // namespace stoker::model
