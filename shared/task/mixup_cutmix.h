// Mixup and CutMix: combine each sample of a batch, and its label, with the previous one.
//
// Threads: pure functions; the given batch is not modified.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/data/transform/batch_transforms.h"

namespace stoker::task {

// `input` F32 [batch, …]; for CutMix [batch, channels, height, width].
at::Tensor mix_inputs(const at::Tensor& input, const data::transform::MixParameters& mix);

// I64 [batch] -> F32 [batch, classes]: class probabilities that sum to 1, as cross entropy accepts.
at::Tensor mix_labels(const at::Tensor& label, int64_t classes,
                      const data::transform::MixParameters& mix);

}  // namespace stoker::task
