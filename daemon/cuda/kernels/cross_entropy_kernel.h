// Cross entropy of BF16 logits and its gradient, which replaces them. A block computes a row: it reads
// the row twice and writes it once; the logits never exist in F32.
#pragma once

#include <cmath>
#include <cstdint>

#include "daemon/cuda/kernels/thread_block.h"

namespace stoker::cuda {

using model::CrossEntropyBatch;

inline constexpr int kCrossEntropyBlockSize = 512;

STOKER_KERNEL void add_logit(ExpSum& sum, float logit) { sum = combine(sum, ExpSum{logit, 1.0f}); }

// The maximum of a row and the sum of exp(logit - maximum), as far as this thread reads the row.
STOKER_KERNEL ExpSum exp_sum_of_thread(const Bf16* row, int64_t classes, int thread, int threads) {
  constexpr int kSize = kVectorSize<Bf16>;
  ExpSum sum{-HUGE_VALF, 0.0f};
  const int64_t end_of_vectors = classes / kSize * kSize;
  for (int64_t i = int64_t{kSize} * thread; i < end_of_vectors; i += int64_t{kSize} * threads) {
    const auto logits = load_vector(row + i);
    float max = sum.max;
    for (int j = 0; j < kSize; ++j) {
      const float logit = to_float(logits.values[j]);
      max = logit > max ? logit : max;
    }
    sum.sum *= exp_factor(sum.max, max);
    sum.max = max;
    for (int j = 0; j < kSize; ++j) sum.sum += exp_factor(to_float(logits.values[j]), max);
  }
  for (int64_t i = end_of_vectors + thread; i < classes; i += threads)
    add_logit(sum, to_float(row[i]));
  return sum;
}

struct CrossEntropyRow {
  float max, inverse_sum, scale;
  int64_t label;
};

STOKER_KERNEL Bf16 logit_gradient(const CrossEntropyRow& row, float logit, int64_t index) {
  const float probability = exp_factor(logit, row.max) * row.inverse_sum;
  Bf16 gradient;
  from_float(gradient, (index == row.label ? probability - 1.0f : probability) * row.scale);
  return gradient;
}

template <typename Block>
STOKER_KERNEL void write_gradient(const Block& block, Bf16* logits, int64_t classes,
                                  const CrossEntropyRow& row) {
  constexpr int kSize = kVectorSize<Bf16>;
  const int64_t end_of_vectors = classes / kSize * kSize;
  block.for_each_thread([&](int thread) {
    for (int64_t i = int64_t{kSize} * thread; i < end_of_vectors;
         i += int64_t{kSize} * block.size()) {
      auto values = load_vector(logits + i);
      for (int j = 0; j < kSize; ++j)
        values.values[j] = logit_gradient(row, to_float(values.values[j]), i + j);
      store_vector(logits + i, values);
    }
    for (int64_t i = end_of_vectors + thread; i < classes; i += block.size())
      logits[i] = logit_gradient(row, to_float(logits[i]), i);
  });
}

template <typename Block>
STOKER_KERNEL void write_zeros(const Block& block, Bf16* logits, int64_t classes) {
  block.for_each_thread([&](int thread) {
    for (int64_t i = thread; i < classes; i += block.size()) logits[i] = Bf16{0};
  });
}

template <typename Block>
STOKER_KERNEL void cross_entropy_kernel(const Block& block, const CrossEntropyBatch& batch) {
  Bf16* const logits = batch.logits + block.index() * batch.row_stride;
  const int64_t label = batch.labels[block.index()];
  float* const loss = batch.losses + block.index();
  if (label == batch.ignored_label) {
    block.for_each_thread([&](int thread) {
      if (thread == 0) *loss = 0.0f;
    });
    if (batch.gradient_scale != nullptr) write_zeros(block, logits, batch.classes);
    return;
  }
  const bool is_class = label >= 0 && label < batch.classes;
  const ExpSum sum = block.reduce(
      [&](int thread) { return exp_sum_of_thread(logits, batch.classes, thread, block.size()); });
  // A barrier follows: the logit is read before it is overwritten.
  block.for_each_thread([&](int thread) {
    if (thread == 0) *loss = is_class ? logf(sum.sum) + sum.max - to_float(logits[label]) : NAN;
  });
  if (batch.gradient_scale == nullptr) return;
  write_gradient(block, logits, batch.classes,
                 {sum.max, 1.0f / sum.sum, *batch.gradient_scale, label});
}

}  // namespace stoker::cuda
