// gelu(x + bias) of a matrix product without its bias, and the gradients of both. A thread has a step of
// neighboring columns, whose bias and sums of gradients stay in registers, and goes through the rows of
// its block. The arithmetic is that of LibTorch's kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "daemon/cuda/kernels/thread_block.h"
#include "daemon/cuda/kernels/vector_step.h"

namespace stoker::cuda {

using model::GeluGradients;
using model::GeluRows;

inline constexpr int kGeluBlockSize = 128;
inline constexpr int64_t kGeluRowsOfBlock = 8;  // in the forward pass; in the backward pass a part

// Columns of a block.
inline constexpr int64_t kGeluColumns = int64_t{kGeluBlockSize} * kStepSize;

inline int64_t gelu_blocks(const GeluRows& of) {
  return ceil_divide(of.rows, kGeluRowsOfBlock) * ceil_divide(of.width, kGeluColumns);
}
inline int64_t gelu_gradient_blocks(const GeluGradients& of) {
  return of.parts * ceil_divide(of.width, kGeluColumns);
}

inline constexpr float kInverseSqrt2 = static_cast<float>(1 / std::numbers::sqrt2);
inline constexpr float kSqrt2OverPi =
    static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
inline constexpr float kGeluCubic = 0.044715f;

STOKER_KERNEL float gelu(float x, bool is_tanh) {
  if (!is_tanh) return x * 0.5f * (1.0f + erff(x * kInverseSqrt2));
  return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * (x + kGeluCubic * (x * x * x))));
}

STOKER_KERNEL float gelu_derivative(float x, bool is_tanh) {
  if (!is_tanh) {
    const float density = expf(-0.5f * x * x) * (0.5f * kSqrt2OverPi);
    return 0.5f * (1.0f + erff(x * kInverseSqrt2)) + x * density;
  }
  const float tanh = tanhf(kSqrt2OverPi * (x + kGeluCubic * (x * x * x)));
  const float of_inner = kSqrt2OverPi * (1.0f + 3.0f * kGeluCubic * (x * x));
  return 0.5f * (1.0f + tanh) + 0.5f * x * (1.0f - tanh * tanh) * of_inner;
}

// Calls `function(first column, number of columns)` for each thread that has columns, in a block of the
// given number of rows: blocks with neighboring indices have the columns of the same rows.
template <typename Block, typename Function>
STOKER_KERNEL void for_each_gelu_step(const Block& block, int64_t width, Function&& function) {
  const int64_t first = block.index() % ceil_divide(width, kGeluColumns) * kGeluColumns;
  block.for_each_thread([&](int thread) {
    const int64_t column = first + int64_t{kStepSize} * thread;
    if (column >= width) return;
    const int64_t rest = width - column;
    function(column, static_cast<int>(rest < kStepSize ? rest : kStepSize));
  });
}

template <typename Block>
STOKER_KERNEL void gelu_kernel(const Block& block, const GeluRows& of) {
  const bool is_vector = of.width % kStepSize == 0;
  const int64_t begin = block.index() / ceil_divide(of.width, kGeluColumns) * kGeluRowsOfBlock;
  const int64_t end = begin + kGeluRowsOfBlock < of.rows ? begin + kGeluRowsOfBlock : of.rows;
  for_each_gelu_step(block, of.width, [&](int64_t column, int count) {
    const VectorStep bias = load_step(of.bias + column, is_vector, count);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * of.width + column;
      VectorStep values = load_step(of.x + at, is_vector, count);
      for (int i = 0; i < kStepSize; ++i)
        values.values[i] = gelu(values.values[i] + bias.values[i], of.is_tanh);
      store_step(of.output + at, values, is_vector, count);
    }
  });
}

// The gradients of the bias are the sums of those of x before these are rounded, in the order of the rows.
template <typename Block>
STOKER_KERNEL void gelu_gradient_kernel(const Block& block, const GeluGradients& of) {
  const bool is_vector = of.width % kStepSize == 0;
  const int64_t part = block.index() / ceil_divide(of.width, kGeluColumns);
  const int64_t rows_of_part = ceil_divide(of.rows, of.parts);
  const int64_t begin = part * rows_of_part;
  const int64_t end = begin + rows_of_part < of.rows ? begin + rows_of_part : of.rows;
  for_each_gelu_step(block, of.width, [&](int64_t column, int count) {
    const VectorStep bias = load_step(of.bias + column, is_vector, count);
    VectorStep sums{};
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * of.width + column;
      VectorStep x = load_step(of.x + at, is_vector, count);
      const VectorStep gradient = load_step(of.output_gradient + at, is_vector, count);
      for (int i = 0; i < kStepSize; ++i) {
        x.values[i] =
            gradient.values[i] * gelu_derivative(x.values[i] + bias.values[i], of.is_tanh);
        sums.values[i] += x.values[i];
      }
      store_step(of.x_gradient + at, x, is_vector, count);
    }
    if (of.maybe_bias_gradients != nullptr)
      store_step(of.maybe_bias_gradients + part * of.width + column, sums, is_vector, count);
  });
}

}  // namespace stoker::cuda
