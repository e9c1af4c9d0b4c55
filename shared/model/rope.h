// Rope: rotary position embeddings (Su et al., 2021) with the layout of Hugging Face's models: the
// first half of a head's values is rotated with the second.
//
// Threads: one thread.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/config/model_config.h"

namespace stoker::model {

// Cosines and sines of the angles, [time, head_dim / 2].
struct RopeTables {
  at::Tensor cos, sin;
};

class Rope {
 public:
  Rope(int64_t head_dim, double theta, const std::optional<config::RopeScaling>& scaling);

  // The tables of positions 0 to time - 1 for values like `like`. Computed in F32, as the published
  // models were trained, and kept while the object exists: a captured CUDA graph reads them again.
  RopeTables tables(int64_t time, const at::Tensor& like);

 private:
  at::Tensor frequencies_;  // F32 [head_dim / 2]
  std::vector<RopeTables> tables_;
};

// `x` [batch, heads, time, head_dim]. The tables can also be [batch, 1, time, head_dim / 2].
at::Tensor rotate(const at::Tensor& x, const RopeTables& tables);

}  // namespace stoker::model
