// generate_tokens: continues sequences of tokens with a language model.
//
// Threads: one at a time.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/model.h"

namespace stoker::task {

struct Sampling {
  double temperature = 1;    // 0: always the most likely token
  std::optional<int> top_k;  // sample from the `top_k` most likely tokens
  double top_p = 1;  // sample from the most likely tokens whose probabilities add up to this
};

// The logits that tokens are sampled from by softmax, of `logits` F32 [rows, vocab]: divided by the
// temperature, -infinity for what top_k excludes, then for what top_p excludes of the rest. As in
// Hugging Face's generate(), tokens as likely as the last of top_k are not excluded, and the most
// likely token never is.
at::Tensor filter_logits(const at::Tensor& logits, const Sampling& sampling);

struct Generation {
  Sampling sampling = {};
  int64_t max_new_tokens = 1;
  std::optional<int64_t> end = {};  // the token that ends a sequence
  uint64_t seed = 0;                // of a separate generator
  bool use_cache = true;            // of keys and values; without, equal but for rounding
  // Called before each token; false ends the generation early.
  std::function<bool()> should_continue = {};
};

// The tokens that follow each row of `prompts` I64 [rows, time], without `end`. Once a sequence is
// longer than the context of the model, its last tokens are its input; their positions change with
// each token, so that each costs as much as the context. Restores the mode of the model.
std::vector<std::vector<int64_t>> generate_tokens(model::Model& model, const at::Tensor& prompts,
                                                  const Generation& generation);

}  // namespace stoker::task
