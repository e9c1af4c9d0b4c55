// The fused update of AdamW over many tensors: the arithmetic of LibTorch's _fused_adamw_, with scalars
// in F32 instead of F64. Each parameter and its state are read and written once, and the copy of
// the parameter in BF16, which the next forward pass reads, is written in the same pass.
#pragma once

#include <cstdint>

#include "daemon/cuda/kernels/thread_block.h"

namespace stoker::cuda {

using model::AdamwTensor;

// The tensors of one launch, which are part of the kernel's arguments (less than 4 KiB). A block
// updates a chunk of one tensor.
struct AdamwLaunch {
  static constexpr int kMaxTensors = 60;
  static constexpr int kBlockSize = 256;
  static constexpr int64_t kChunk = int64_t{kBlockSize} * 16;

  AdamwTensor tensors[kMaxTensors];
  int64_t first_block[kMaxTensors + 1];
  int num_tensors;
  float beta1, beta2, eps, weight_decay;
  // 1 - beta, rounded once, and the logarithm of beta, for 1 - beta^step.
  float one_minus_beta1, one_minus_beta2, log_beta1, log_beta2;
  float lr;
  const float *maybe_lr, *maybe_grad_scale, *maybe_found_inf;
};
static_assert(sizeof(AdamwLaunch) <= 4096);

// What is equal for all elements of a tensor.
struct AdamwScalars {
  float lr_decay;  // not 1 - lr_decay, which F32 rounds too coarsely
  float step_size, root_bias_correction2;
  float grad_scale;
};

STOKER_KERNEL AdamwScalars adamw_scalars(const AdamwLaunch& launch, const AdamwTensor& tensor) {
  const float lr = launch.maybe_lr != nullptr ? *launch.maybe_lr : launch.lr;
  const float step = *tensor.step;
  return {lr * launch.weight_decay, lr / -expm1f(step * launch.log_beta1),
          sqrtf(-expm1f(step * launch.log_beta2)),
          launch.maybe_grad_scale != nullptr ? *launch.maybe_grad_scale : 1.0f};
}

STOKER_KERNEL float adamw_update(const AdamwLaunch& launch, const AdamwScalars& scalars,
                                 float parameter, float gradient, float& exp_avg,
                                 float& exp_avg_sq) {
  gradient /= scalars.grad_scale;
  exp_avg = launch.beta1 * exp_avg + launch.one_minus_beta1 * gradient;
  exp_avg_sq = launch.beta2 * exp_avg_sq + launch.one_minus_beta2 * gradient * gradient;
  const float divisor = sqrtf(exp_avg_sq) / scalars.root_bias_correction2 + launch.eps;
  return parameter - (scalars.lr_decay * parameter + scalars.step_size * (exp_avg / divisor));
}

STOKER_KERNEL void adamw_element(const AdamwLaunch& launch, const AdamwScalars& scalars,
                                 const AdamwTensor& tensor, int64_t i) {
  float exp_avg = tensor.exp_avg[i], exp_avg_sq = tensor.exp_avg_sq[i];
  const float parameter =
      adamw_update(launch, scalars, tensor.parameter[i], tensor.gradient[i], exp_avg, exp_avg_sq);
  tensor.exp_avg[i] = exp_avg;
  tensor.exp_avg_sq[i] = exp_avg_sq;
  tensor.parameter[i] = parameter;
  if (tensor.maybe_copy != nullptr) from_float(tensor.maybe_copy[i], parameter);
}

// Four elements; all arrays are aligned at `i`.
STOKER_KERNEL void adamw_vector(const AdamwLaunch& launch, const AdamwScalars& scalars,
                                const AdamwTensor& tensor, int64_t i) {
  struct alignas(8) Copies {
    Bf16 values[4];
  };
  auto parameter = load_vector(tensor.parameter + i);
  const auto gradient = load_vector(tensor.gradient + i);
  auto exp_avg = load_vector(tensor.exp_avg + i);
  auto exp_avg_sq = load_vector(tensor.exp_avg_sq + i);
  Copies copies;
  for (int j = 0; j < 4; ++j) {
    parameter.values[j] = adamw_update(launch, scalars, parameter.values[j], gradient.values[j],
                                       exp_avg.values[j], exp_avg_sq.values[j]);
    from_float(copies.values[j], parameter.values[j]);
  }
  store_vector(tensor.parameter + i, parameter);
  store_vector(tensor.exp_avg + i, exp_avg);
  store_vector(tensor.exp_avg_sq + i, exp_avg_sq);
  if (tensor.maybe_copy != nullptr) *reinterpret_cast<Copies*>(tensor.maybe_copy + i) = copies;
}

STOKER_KERNEL bool is_aligned(const AdamwTensor& tensor) {
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(tensor.parameter) | reinterpret_cast<uintptr_t>(tensor.gradient) |
      reinterpret_cast<uintptr_t>(tensor.exp_avg) | reinterpret_cast<uintptr_t>(tensor.exp_avg_sq);
  return addresses % 16 == 0 && reinterpret_cast<uintptr_t>(tensor.maybe_copy) % 8 == 0;
}

template <typename Block>
STOKER_KERNEL void adamw_kernel(const Block& block, const AdamwLaunch& launch) {
  if (launch.maybe_found_inf != nullptr && *launch.maybe_found_inf == 1.0f) return;
  // The last tensor whose first block is not after this one.
  int low = 0, high = launch.num_tensors - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (launch.first_block[middle] <= block.index())
      low = middle;
    else
      high = middle - 1;
  }
  const AdamwTensor& tensor = launch.tensors[low];
  const int64_t begin = (block.index() - launch.first_block[low]) * AdamwLaunch::kChunk;
  const int64_t rest = tensor.size - begin;
  const int64_t end = begin + (rest < AdamwLaunch::kChunk ? rest : AdamwLaunch::kChunk);
  const int64_t end_of_vectors = is_aligned(tensor) ? begin + (end - begin) / 4 * 4 : begin;
  block.for_each_thread([&](int thread) {
    const AdamwScalars scalars = adamw_scalars(launch, tensor);
    for (int64_t i = begin + int64_t{4} * thread; i < end_of_vectors;
         i += int64_t{4} * block.size())
      adamw_vector(launch, scalars, tensor, i);
    for (int64_t i = end_of_vectors + thread; i < end; i += block.size())
      adamw_element(launch, scalars, tensor, i);
  });
}

// Splits the tensors into launches and calls `launch(arguments, number of blocks)` for each.
template <typename Launch>
void launch_adamw(const AdamwTensor* tensors, int64_t count, const model::AdamwOptions& options,
                  Launch&& launch) {
  AdamwLaunch arguments{};
  arguments.beta1 = static_cast<float>(options.beta1);
  arguments.beta2 = static_cast<float>(options.beta2);
  arguments.eps = static_cast<float>(options.eps);
  arguments.weight_decay = static_cast<float>(options.weight_decay);
  arguments.one_minus_beta1 = static_cast<float>(1 - options.beta1);
  arguments.one_minus_beta2 = static_cast<float>(1 - options.beta2);
  arguments.log_beta1 = static_cast<float>(std::log(options.beta1));
  arguments.log_beta2 = static_cast<float>(std::log(options.beta2));
  arguments.lr = static_cast<float>(options.lr);
  arguments.maybe_lr = options.maybe_lr;
  arguments.maybe_grad_scale = options.maybe_grad_scale;
  arguments.maybe_found_inf = options.maybe_found_inf;
  for (int64_t i = 0; i < count; ++i) {
    if (tensors[i].size > 0) {
      int& n = arguments.num_tensors;
      arguments.tensors[n] = tensors[i];
      arguments.first_block[n + 1] =
          arguments.first_block[n] + ceil_divide(tensors[i].size, AdamwLaunch::kChunk);
      ++n;
    }
    const bool is_full = arguments.num_tensors == AdamwLaunch::kMaxTensors;
    if (arguments.num_tensors == 0 || (!is_full && i + 1 < count)) continue;
    launch(arguments, arguments.first_block[arguments.num_tensors]);
    arguments.num_tensors = 0;
  }
}

}  // namespace stoker::cuda
