// DataFit: what a model must know of the data it is made for, and whether the two go together.
//
// Threads: pure functions.
// Errors:  kMismatch, naming both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::model {

const TensorSpec* find_tensor(const std::vector<TensorSpec>& sample, const std::string& name);

// "tokens U8 [129]" or "input F32 [3, 32, 32], label I64 []".
std::string describe(const std::vector<TensorSpec>& sample);

// The sample's "input"; `min_side` > 0 also asks for a picture [channels, height, width] whose
// sides are at least that.
Result<TensorSpec> find_input_tensor(const std::vector<TensorSpec>& sample,
                                     const std::string& model, int64_t min_side);

// How many outputs the model has: model.num_classes, or what the data has (classes, or width of the
// target).
Result<int64_t> num_outputs(std::optional<int64_t> num_classes,
                            const std::vector<TensorSpec>& sample, uint64_t classes);

// Of a language model: model.context_length and model.vocab_size.
struct TokenLimits {
  int64_t context_length;
  int64_t vocab_size;
};

// For language models: the sample's `tokens` fit the context, and the data's (`classes`, where that
// is known) the vocabulary.
Status validate_vocab(const TokenLimits& limits, const std::vector<TensorSpec>& sample,
                      uint64_t classes, const std::string& model);

}  // namespace stoker::model
