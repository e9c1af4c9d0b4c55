// Checks whether a model and a dataset are compatible, and derives from the data what the model
// needs to be built.
//
// Threads: pure functions.
// Errors:  kMismatch, naming both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_role.h"
#include "shared/base/tensor_spec.h"

namespace stoker::model {

const TensorSpec* find_tensor(const std::vector<TensorSpec>& sample, TensorRole role);

// "tokens U8 [129]" or "input F32 [3, 32, 32], label I64 []".
std::string describe(const std::vector<TensorSpec>& sample);

// Returns the "input" tensor of the sample. If `min_side` > 0, it must be an image [channels,
// height, width] whose height and width are at least `min_side`.
Result<TensorSpec> find_input_tensor(const std::vector<TensorSpec>& sample,
                                     const std::string& model, int64_t min_side);

// A tensor of a sample as Model::step() gets it: `input` is F32, `tokens` are I64.
TensorSpec as_field(TensorSpec spec);

// Number of model outputs: model.num_classes if it is set, otherwise the number of classes or the
// width of the target in the data.
Result<int64_t> num_outputs(std::optional<int64_t> num_classes,
                            const std::vector<TensorSpec>& sample, uint64_t classes);

// model.context_length and model.vocab_size of a language model.
struct TokenLimits {
  int64_t context_length;
  int64_t vocab_size;
};

// For language models: checks that `tokens` of the sample fit the context length, and that
// `classes`, if known, fits the vocabulary.
Status validate_vocab(const TokenLimits& limits, const std::vector<TensorSpec>& sample,
                      uint64_t classes, const std::string& model);

}  // namespace stoker::model
