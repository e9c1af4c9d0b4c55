// LayerNorm and RMSNorm with the addition to the residual stream before and the conversion to BF16 after
// them, and their gradients. A block computes a row. It reads the row from memory once, later from the
// cache.
#pragma once

#include <cmath>
#include <cstdint>

#include "daemon/cuda/kernels/thread_block.h"
#include "daemon/cuda/kernels/vector_step.h"

namespace stoker::cuda {

using model::NormGradients;
using model::NormRows;

inline constexpr int kNormWeightBlockSize = 128;

// A thread for two steps of a row, in whole warps.
inline int norm_block_size(int64_t width) {
  constexpr int64_t kMostThreads = 512;
  const int64_t warps = ceil_divide(width / (2 * kStepSize), kWarpSize);
  const int64_t threads = (warps < 1 ? 1 : warps) * kWarpSize;
  return static_cast<int>(threads < kMostThreads ? threads : kMostThreads);
}

// Rows start at multiples of 16 bytes only if the width is a multiple of a step.
STOKER_KERNEL bool has_vectors(int64_t width) { return width % kStepSize == 0; }

// Writes x + delta. Returns the sum of the row.
template <typename Block>
STOKER_KERNEL float add_delta(const Block& block, const NormRows& rows, int64_t row) {
  const bool is_vector = has_vectors(rows.width);
  return block
      .reduce([&](int thread) {
        Sum sum{0.0f};
        for_each_step(rows.width, thread, block.size(), [&](int64_t at, int count) {
          VectorStep x = load_step(rows.x + row + at, is_vector, count);
          if (rows.maybe_delta != nullptr) {
            const VectorStep delta = load_step(rows.maybe_delta + row + at, is_vector, count);
            for (int i = 0; i < kStepSize; ++i) x.values[i] += delta.values[i];
            store_step(rows.maybe_sum + row + at, x, is_vector, count);
          }
          for (int i = 0; i < kStepSize; ++i) sum.value += x.values[i];
        });
        return sum;
      })
      .value;
}

template <typename Block>
STOKER_KERNEL void norm_kernel(const Block& block, const NormRows& rows) {
  const int64_t row = block.index() * rows.width;
  const bool is_vector = has_vectors(rows.width);
  const float inverse_width = 1.0f / static_cast<float>(rows.width);
  const float total = add_delta(block, rows, row);
  const float mean = rows.maybe_mean != nullptr ? total * inverse_width : 0.0f;
  // What this thread has written itself.
  const float* const x = rows.maybe_delta != nullptr ? rows.maybe_sum : rows.x;
  const float squares =
      block
          .reduce([&](int thread) {
            Sum sum{0.0f};
            for_each_step(rows.width, thread, block.size(), [&](int64_t at, int count) {
              const VectorStep values = load_step(x + row + at, is_vector, count);
              // Not `i < count`: an index that is not constant would move the values to local memory.
              for (int i = 0; i < kStepSize; ++i)
                if (i < count) sum.value += (values.values[i] - mean) * (values.values[i] - mean);
            });
            return sum;
          })
          .value;
  const float rstd = 1.0f / sqrtf(squares * inverse_width + static_cast<float>(rows.eps));
  block.for_each_thread([&](int thread) {
    if (thread == 0) {
      rows.rstd[block.index()] = rstd;
      if (rows.maybe_mean != nullptr) rows.maybe_mean[block.index()] = mean;
    }
    for_each_step(rows.width, thread, block.size(), [&](int64_t at, int count) {
      VectorStep values = load_step(x + row + at, is_vector, count);
      const VectorStep weight = load_step(rows.weight + at, is_vector, count);
      VectorStep bias{};
      if (rows.maybe_bias != nullptr) bias = load_step(rows.maybe_bias + at, is_vector, count);
      for (int i = 0; i < kStepSize; ++i)
        values.values[i] = (values.values[i] - mean) * rstd * weight.values[i] + bias.values[i];
      store_step(rows.output + row + at, values, is_vector, count);
    });
  });
}

// The gradient of x: rstd * (g - mean(g) - y * mean(g * y)), where y is the normalized row and g the
// gradient of the output times the weight; RMSNorm lacks mean(g). That of the sum's other uses is added.
template <typename Block>
STOKER_KERNEL void norm_gradient_kernel(const Block& block, const NormGradients& of) {
  const int64_t row = block.index() * of.width;
  const bool is_vector = has_vectors(of.width);
  const float inverse_width = 1.0f / static_cast<float>(of.width);
  const float mean = of.maybe_mean != nullptr ? of.maybe_mean[block.index()] : 0.0f;
  const float rstd = of.rstd[block.index()];
  const Sum2 sums = block.reduce([&](int thread) {
    Sum2 sum{0.0f, 0.0f};
    for_each_step(of.width, thread, block.size(), [&](int64_t at, int count) {
      const VectorStep x = load_step(of.sum + row + at, is_vector, count);
      const VectorStep weight = load_step(of.weight + at, is_vector, count);
      const VectorStep gradient = load_step(of.output_gradient + row + at, is_vector, count);
      // Values after `count` are 0.
      for (int i = 0; i < kStepSize; ++i) {
        const float g = gradient.values[i] * weight.values[i];
        sum.first += g;
        sum.second += g * (x.values[i] - mean) * rstd;
      }
    });
    return sum;
  });
  const float mean_g = of.maybe_mean != nullptr ? sums.first * inverse_width : 0.0f;
  const float mean_gy = sums.second * inverse_width;
  block.for_each_thread([&](int thread) {
    for_each_step(of.width, thread, block.size(), [&](int64_t at, int count) {
      VectorStep x = load_step(of.sum + row + at, is_vector, count);
      const VectorStep weight = load_step(of.weight + at, is_vector, count);
      const VectorStep gradient = load_step(of.output_gradient + row + at, is_vector, count);
      VectorStep other{};
      if (of.maybe_sum_gradient != nullptr)
        other = load_step(of.maybe_sum_gradient + row + at, is_vector, count);
      for (int i = 0; i < kStepSize; ++i) {
        const float g = gradient.values[i] * weight.values[i];
        const float y = (x.values[i] - mean) * rstd;
        x.values[i] = rstd * (g - mean_g - y * mean_gy) + other.values[i];
      }
      store_step(of.x_gradient + row + at, x, is_vector, count);
      if (of.maybe_delta_gradient != nullptr)
        store_step(of.maybe_delta_gradient + row + at, x, is_vector, count);
    });
  });
}

// The blocks of norm_weight_gradient_kernel: for each part those for all columns.
inline int64_t norm_weight_blocks(const NormGradients& of) {
  return of.parts * ceil_divide(of.width, kNormWeightBlockSize);
}

// The gradients of weight and bias, summed over the rows of a part: a thread has a column, so that a warp
// reads neighboring ones. The order of the sum is fixed.
template <typename Block>
STOKER_KERNEL void norm_weight_gradient_kernel(const Block& block, const NormGradients& of) {
  const int64_t blocks_of_part = ceil_divide(of.width, kNormWeightBlockSize);
  const int64_t part = block.index() / blocks_of_part;
  const int64_t first_column = block.index() % blocks_of_part * kNormWeightBlockSize;
  const int64_t rows_of_part = ceil_divide(of.rows, of.parts);
  const int64_t begin = part * rows_of_part;
  const int64_t end = begin + rows_of_part < of.rows ? begin + rows_of_part : of.rows;
  block.for_each_thread([&](int thread) {
    const int64_t column = first_column + thread;
    if (column >= of.width) return;
    float weight = 0.0f, bias = 0.0f;
    for (int64_t row = begin; row < end; ++row) {
      const float gradient = to_float(of.output_gradient[row * of.width + column]);
      const float mean = of.maybe_mean != nullptr ? of.maybe_mean[row] : 0.0f;
      weight += gradient * (of.sum[row * of.width + column] - mean) * of.rstd[row];
      bias += gradient;
    }
    of.weight_gradients[part * of.width + column] = weight;
    if (of.maybe_bias_gradients != nullptr)
      of.maybe_bias_gradients[part * of.width + column] = bias;
  });
}

}  // namespace stoker::cuda
