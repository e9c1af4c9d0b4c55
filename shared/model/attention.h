// Helpers of self-attention.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace stoker::model {

// Splits [batch, time, 3 * width], the output of one projection to query, key and value, into three
// views [batch, heads, time, width / heads]. Their gradients are concatenated; three selections of
// one permuted tensor would each zero and add a gradient of the whole.
inline std::vector<at::Tensor> split_heads(const at::Tensor& qkv, int64_t heads) {
  const int64_t batch = qkv.size(0), time = qkv.size(1), width = qkv.size(2) / 3;
  std::vector<at::Tensor> parts = qkv.split(width, /*dim=*/2);
  for (at::Tensor& part : parts)
    part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
  return parts;
}

}  // namespace stoker::model
