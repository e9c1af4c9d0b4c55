// Helpers of attention.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "shared/model/key_value_cache.h"

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

// Causal attention of the last time steps of sequences, `q` [batch, heads, time, head_dim], to all
// of their time steps so far, [batch, groups, all, head_dim]. Each group serves the same number of
// heads. For evaluation: without dropout.
inline at::Tensor attend_to_past(const at::Tensor& q, const KeysAndValues& past) {
  const auto& [k, v] = past;
  const int64_t batch = q.size(0), heads = q.size(1), time = q.size(2), width = q.size(3),
                groups = k.size(1), all = k.size(2);
  // The heads of a group are its time steps, which spares a copy of its keys and values for each.
  const at::Tensor queries = q.reshape({batch, groups, heads / groups * time, width});
  std::optional<at::Tensor> mask;  // one time step sees everything
  if (time > 1)
    mask = at::ones({time, all}, q.options().dtype(at::kBool))
               .tril(all - time)
               .repeat({heads / groups, 1});
  return at::scaled_dot_product_attention(queries, k, v, mask).reshape({batch, heads, time, width});
}

}  // namespace stoker::model
