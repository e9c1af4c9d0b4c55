// The embedding of tokens. Its row of the padding starts as 0 and is not trained, as padding_idx of PyTorch;
// an output layer with the same weights still trains it.
//
// Threads: as torch::nn::Embedding.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/embedding.h>

namespace stoker::model {

// `maybe_pad_token`: below `vocab_size`.
inline torch::nn::Embedding make_token_embedding(int64_t vocab_size, int64_t width,
                                                 const std::optional<int64_t>& maybe_pad_token) {
  torch::nn::EmbeddingOptions options(vocab_size, width);
  if (maybe_pad_token) options.padding_idx(*maybe_pad_token);
  return torch::nn::Embedding(options);
}

// After the weights have been drawn.
inline void zero_pad_token(const torch::nn::Embedding& tokens) {
  const auto& pad_token = tokens->options.padding_idx();
  if (!pad_token) return;
  const at::NoGradGuard no_grad;
  tokens->weight.select(0, *pad_token).zero_();
}

}  // namespace stoker::model
