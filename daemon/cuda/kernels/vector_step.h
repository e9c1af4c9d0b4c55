// VectorStep: up to eight neighboring values of a row in F32, which a thread handles together.
#pragma once

#include <cstdint>

#include "daemon/cuda/kernels/thread_block.h"

namespace stoker::cuda {

// Elements: 16 bytes of BF16, 32 of F32.
inline constexpr int kStepSize = 8;

struct VectorStep {
  float values[kStepSize];
};

// With `is_vector`, `from` is aligned to 16 bytes and `count` is kStepSize. Else the values after `count`
// are 0.
STOKER_KERNEL VectorStep load_step(const float* from, bool is_vector, int count) {
  VectorStep step{};
  if (is_vector) {
    const auto low = load_vector(from), high = load_vector(from + 4);
    for (int i = 0; i < 4; ++i) {
      step.values[i] = low.values[i];
      step.values[i + 4] = high.values[i];
    }
  } else {
    for (int i = 0; i < kStepSize; ++i)
      if (i < count) step.values[i] = from[i];
  }
  return step;
}

STOKER_KERNEL VectorStep load_step(const Bf16* from, bool is_vector, int count) {
  VectorStep step{};
  if (is_vector) {
    const auto vector = load_vector(from);
    for (int i = 0; i < kStepSize; ++i) step.values[i] = to_float(vector.values[i]);
  } else {
    for (int i = 0; i < kStepSize; ++i)
      if (i < count) step.values[i] = to_float(from[i]);
  }
  return step;
}

STOKER_KERNEL void store_step(float* to, const VectorStep& step, bool is_vector, int count) {
  if (is_vector) {
    Vector<float> low, high;
    for (int i = 0; i < 4; ++i) {
      low.values[i] = step.values[i];
      high.values[i] = step.values[i + 4];
    }
    store_vector(to, low);
    store_vector(to + 4, high);
  } else {
    for (int i = 0; i < kStepSize; ++i)
      if (i < count) to[i] = step.values[i];
  }
}

STOKER_KERNEL void store_step(Bf16* to, const VectorStep& step, bool is_vector, int count) {
  if (is_vector) {
    Vector<Bf16> vector;
    for (int i = 0; i < kStepSize; ++i) from_float(vector.values[i], step.values[i]);
    store_vector(to, vector);
  } else {
    for (int i = 0; i < kStepSize; ++i)
      if (i < count) from_float(to[i], step.values[i]);
  }
}

// Calls `function(first element, number of elements)` for the steps of a thread; the last step of all can
// be shorter.
template <typename Function>
STOKER_KERNEL void for_each_step(int64_t size, int64_t thread, int64_t threads,
                                 Function&& function) {
  for (int64_t at = kStepSize * thread; at < size; at += kStepSize * threads) {
    const int64_t rest = size - at;
    function(at, static_cast<int>(rest < kStepSize ? rest : kStepSize));
  }
}

}  // namespace stoker::cuda
