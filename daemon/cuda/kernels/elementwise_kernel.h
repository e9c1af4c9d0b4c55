// SwiGLU and rotary position embeddings of BF16 values, computed in F32 and rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "daemon/cuda/kernels/thread_block.h"
#include "daemon/cuda/kernels/vector_step.h"

namespace stoker::cuda {

using model::RopeRotation;
using model::SwigluGradients;
using model::SwigluValues;

inline constexpr int kElementwiseBlockSize = 256;

// Blocks for `steps` steps, one for each thread.
inline int64_t elementwise_blocks(int64_t steps) {
  return ceil_divide(steps, kElementwiseBlockSize);
}
inline int64_t steps_of(int64_t size) { return ceil_divide(size, kStepSize); }

STOKER_KERNEL float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename Block>
STOKER_KERNEL void swiglu_kernel(const Block& block, const SwigluValues& of) {
  block.for_each_thread([&](int thread) {
    for_each_step(of.size, block.index() * block.size() + thread, block.num_blocks() * block.size(),
                  [&](int64_t at, int count) {
                    const bool is_vector = count == kStepSize;
                    VectorStep gate = load_step(of.gate + at, is_vector, count);
                    const VectorStep up = load_step(of.up + at, is_vector, count);
                    for (int i = 0; i < kStepSize; ++i)
                      gate.values[i] *= sigmoid(gate.values[i]) * up.values[i];
                    store_step(of.output + at, gate, is_vector, count);
                  });
  });
}

template <typename Block>
STOKER_KERNEL void swiglu_gradient_kernel(const Block& block, const SwigluGradients& of) {
  block.for_each_thread([&](int thread) {
    for_each_step(of.size, block.index() * block.size() + thread, block.num_blocks() * block.size(),
                  [&](int64_t at, int count) {
                    const bool is_vector = count == kStepSize;
                    VectorStep gate = load_step(of.gate + at, is_vector, count);
                    VectorStep up = load_step(of.up + at, is_vector, count);
                    const VectorStep gradient =
                        load_step(of.output_gradient + at, is_vector, count);
                    for (int i = 0; i < kStepSize; ++i) {
                      const float x = gate.values[i], sigma = sigmoid(x), g = gradient.values[i];
                      gate.values[i] = g * up.values[i] * sigma * (1.0f + x * (1.0f - sigma));
                      up.values[i] = g * x * sigma;
                    }
                    store_step(of.gate_gradient + at, gate, is_vector, count);
                    store_step(of.up_gradient + at, up, is_vector, count);
                  });
  });
}

// The steps of all heads.
inline int64_t rope_steps(const RopeRotation& of) {
  return of.batch * of.heads * of.time * steps_of(of.half);
}

// Whether all steps are aligned to 16 bytes.
STOKER_KERNEL bool has_vectors(const RopeRotation& of) {
  int64_t sum = of.half % kStepSize;
  for (int i = 0; i < 3; ++i) sum += of.x_strides[i] % kStepSize + of.output_strides[i] % kStepSize;
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(of.x) | reinterpret_cast<uintptr_t>(of.output) |
      reinterpret_cast<uintptr_t>(of.cos) | reinterpret_cast<uintptr_t>(of.sin);
  return sum == 0 && addresses % 16 == 0;
}

// Rotates the values at a step of one head.
STOKER_KERNEL void rotate_step(const RopeRotation& of, int64_t step, bool is_vector) {
  const int64_t steps_of_head = ceil_divide(of.half, kStepSize);
  const int64_t at = step % steps_of_head * kStepSize, rest = of.half - at;
  const int count = static_cast<int>(rest < kStepSize ? rest : kStepSize);
  int64_t index = step / steps_of_head;
  const int64_t time = index % of.time;
  index /= of.time;
  const int64_t head = index % of.heads, sample = index / of.heads;
  const Bf16* const x =
      of.x + sample * of.x_strides[0] + head * of.x_strides[1] + time * of.x_strides[2] + at;
  Bf16* const output = of.output + sample * of.output_strides[0] + head * of.output_strides[1] +
                       time * of.output_strides[2] + at;
  const VectorStep cos = load_step(of.cos + time * of.half + at, is_vector, count);
  const VectorStep sin = load_step(of.sin + time * of.half + at, is_vector, count);
  VectorStep first = load_step(x, is_vector, count),
             second = load_step(x + of.half, is_vector, count);
  const float sign = of.is_inverse ? -1.0f : 1.0f;
  for (int i = 0; i < kStepSize; ++i) {
    const float a = first.values[i], b = second.values[i];
    first.values[i] = a * cos.values[i] - b * (sign * sin.values[i]);
    second.values[i] = b * cos.values[i] + a * (sign * sin.values[i]);
  }
  store_step(output, first, is_vector, count);
  store_step(output + of.half, second, is_vector, count);
}

template <typename Block>
STOKER_KERNEL void rope_kernel(const Block& block, const RopeRotation& of, int64_t steps) {
  const bool is_vector = has_vectors(of);
  block.for_each_thread([&](int thread) {
    const int64_t step = block.index() * block.size() + thread;
    if (step < steps) rotate_step(of, step, is_vector);
  });
}

}  // namespace stoker::cuda
