// Mixup and cutmix: a batch of pictures (or numbers) and labels, with each sample joined to the one
// before it.
//
// Threads: pure functions; the batch they are given is not written to.
// Errors:  LibTorch's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/dataset/batch_transforms.h"

namespace stoker::task {

// `input` F32 [batch, …]; for cutmix [batch, channels, height, width].
at::Tensor mix_inputs(const at::Tensor& input, const dataset::MixParameters& mix);

// I64 [batch] -> F32 [batch, classes]: shares of each class, which add up to 1. What cross entropy
// takes as targets.
at::Tensor mix_labels(const at::Tensor& label, int64_t classes, const dataset::MixParameters& mix);

}  // namespace stoker::task
