// KernelTable: the fused kernels of a device, as functions on device memory. They do in one pass what
// LibTorch does in several kernels.
//
// The CUDA module has a table if it was built with nvcc (daemon/cuda/kernels). The same kernels
// compiled for the host are a second one, by which tests run them without a device.
//
// This header is also compiled by nvcc and includes nothing of LibTorch. Pointers without another note
// are device memory, contiguous and aligned to 16 bytes. A function submits its kernel to the current
// stream of LibTorch and does not wait; all inputs of a kernel can therefore change between replays of
// a captured graph, if they are in device memory.
//
// Threads: any, as LibTorch's operators.
// Errors:  c10::Error if a kernel cannot be launched.
#pragma once

#include <cstdint>

namespace stoker::model {

// The bits of a bfloat16; c10::BFloat16 has the same layout.
struct Bf16 {
  uint16_t bits;
};

// One parameter of AdamW. All arrays have `size` elements and need only the alignment of an element.
struct AdamwTensor {
  float* parameter;
  const float* gradient;
  float* exp_avg;
  float* exp_avg_sq;
  const float* step;  // scalar: the number of this update, from 1
  Bf16* maybe_copy;   // is set to the parameter in BF16; null: none
  int64_t size;
};

struct AdamwOptions {
  double beta1, beta2, eps, weight_decay;
  double lr;
  const float* maybe_lr;          // scalar, instead of lr
  const float* maybe_grad_scale;  // scalar by which gradients are divided
  const float* maybe_found_inf;   // scalar; 1: nothing changes
};

// A batch of logits, whose rows have an alignment of 16 bytes.
struct CrossEntropyBatch {
  Bf16* logits;                 // [rows, classes]; replaced by the gradient with respect to them
  const int64_t* labels;        // [rows]; `ignored_label` is a row without loss and with gradient 0
  float* losses;                // [rows], not scaled; NaN for a label that is not a class
  const float* gradient_scale;  // scalar by which the gradient is multiplied; null: no gradient
  int64_t rows, classes;
  int64_t row_stride;  // elements, a multiple of 8
  int64_t ignored_label;
};

// LayerNorm or RMSNorm of the sum of a residual stream and what is added to it. Rows are contiguous.
struct NormRows {
  const float* x;            // [rows, width]
  const Bf16* maybe_delta;   // [rows, width], is added to x; null: nothing
  float* maybe_sum;          // [rows, width], with a delta: is set to the sum
  const float* weight;       // [width]
  const float* maybe_bias;   // [width]
  Bf16* output;              // [rows, width]
  float *maybe_mean, *rstd;  // [rows]; without mean: RMSNorm
  int64_t rows, width;
  double eps;
};

// `sum`, `mean` and `rstd` are those of the forward pass. The gradients of weight and bias are sums over
// the rows of a part each: [parts, width].
struct NormGradients {
  const float* sum;
  const float *maybe_mean, *rstd;
  const float* weight;
  const Bf16* output_gradient;      // [rows, width]
  const float* maybe_sum_gradient;  // [rows, width]: of the sum's other uses
  float* x_gradient;                // [rows, width]
  Bf16* maybe_delta_gradient;       // the same in BF16
  float *weight_gradients, *maybe_bias_gradients;
  int64_t rows, width, parts;
};

// silu(gate) * up, elementwise.
struct SwigluValues {
  const Bf16 *gate, *up;
  Bf16* output;
  int64_t size;
};

struct SwigluGradients {
  const Bf16 *gate, *up, *output_gradient;
  Bf16 *gate_gradient, *up_gradient;
  int64_t size;
};

// gelu(x + bias). Rows are contiguous.
struct GeluRows {
  const Bf16* x;      // [rows, width], the matrix product without its bias
  const float* bias;  // [width]
  Bf16* output;       // [rows, width]
  int64_t rows, width;
  bool is_tanh;  // the approximation by tanh, else the exact form by erf
};

// The gradients of the bias are sums over the rows of a part each: [parts, width].
struct GeluGradients {
  const Bf16* x;
  const float* bias;
  const Bf16* output_gradient;  // [rows, width]
  Bf16* x_gradient;             // [rows, width]
  float* maybe_bias_gradients;  // null: not needed
  int64_t rows, width, parts;
  bool is_tanh;
};

// Rotary position embeddings: the first half of a head's values is rotated with the second. Values of a
// head are contiguous; the strides of batch, heads and time are in elements.
struct RopeRotation {
  const Bf16* x;  // [batch, heads, time, 2 * half], as the output
  Bf16* output;
  const float *cos, *sin;  // [time, half]
  int64_t batch, heads, time, half;
  int64_t x_strides[3], output_strides[3];
  bool is_inverse;  // rotates back, as the gradient
};

// A kernel that is null is not used or does not exist. A backward kernel is null if its forward kernel is.
struct KernelTable {
  // Decoupled weight decay, without amsgrad. The gradients stay as they are.
  void (*adamw)(const AdamwTensor* tensors, int64_t count, const AdamwOptions& options) = nullptr;
  // Forward and backward of the cross entropy in nats, computed in F32.
  void (*cross_entropy)(const CrossEntropyBatch& batch) = nullptr;
  void (*gelu)(const GeluRows& rows) = nullptr;
  void (*gelu_backward)(const GeluGradients& gradients) = nullptr;
  void (*norm)(const NormRows& rows) = nullptr;
  void (*norm_backward)(const NormGradients& gradients) = nullptr;
  void (*swiglu)(const SwigluValues& values) = nullptr;
  void (*swiglu_backward)(const SwigluGradients& gradients) = nullptr;
  // Needs the alignment of an element only.
  void (*rope)(const RopeRotation& rotation) = nullptr;

  bool operator==(const KernelTable&) const = default;
};

}  // namespace stoker::model
