#include "daemon/cuda/kernels/host_kernels.h"

#include "daemon/cuda/kernels/adamw_kernel.h"
#include "daemon/cuda/kernels/cross_entropy_kernel.h"
#include "daemon/cuda/kernels/elementwise_kernel.h"
#include "daemon/cuda/kernels/gelu_kernel.h"
#include "daemon/cuda/kernels/norm_kernel.h"

namespace stoker::cuda {
namespace {

template <typename Kernel>
void run_blocks(int64_t count, int block_size, Kernel&& kernel) {
  for (int64_t i = 0; i < count; ++i) kernel(HostBlock(i, count, block_size));
}

void adamw(const model::AdamwTensor* tensors, int64_t count, const model::AdamwOptions& options) {
  launch_adamw(tensors, count, options, [](const AdamwLaunch& launch, int64_t blocks) {
    run_blocks(blocks, AdamwLaunch::kBlockSize,
               [&](const HostBlock& block) { adamw_kernel(block, launch); });
  });
}

void cross_entropy(const model::CrossEntropyBatch& batch) {
  run_blocks(batch.rows, kCrossEntropyBlockSize,
             [&](const HostBlock& block) { cross_entropy_kernel(block, batch); });
}

void gelu_forward(const model::GeluRows& rows) {
  run_blocks(gelu_blocks(rows), kGeluBlockSize,
             [&](const HostBlock& block) { gelu_kernel(block, rows); });
}

void gelu_backward(const model::GeluGradients& gradients) {
  run_blocks(gelu_gradient_blocks(gradients), kGeluBlockSize,
             [&](const HostBlock& block) { gelu_gradient_kernel(block, gradients); });
}

void norm(const model::NormRows& rows) {
  run_blocks(rows.rows, norm_block_size(rows.width),
             [&](const HostBlock& block) { norm_kernel(block, rows); });
}

void norm_backward(const model::NormGradients& gradients) {
  run_blocks(gradients.rows, norm_block_size(gradients.width),
             [&](const HostBlock& block) { norm_gradient_kernel(block, gradients); });
  run_blocks(norm_weight_blocks(gradients), kNormWeightBlockSize,
             [&](const HostBlock& block) { norm_weight_gradient_kernel(block, gradients); });
}

void swiglu(const model::SwigluValues& values) {
  run_blocks(elementwise_blocks(steps_of(values.size)), kElementwiseBlockSize,
             [&](const HostBlock& block) { swiglu_kernel(block, values); });
}

void swiglu_backward(const model::SwigluGradients& gradients) {
  run_blocks(elementwise_blocks(steps_of(gradients.size)), kElementwiseBlockSize,
             [&](const HostBlock& block) { swiglu_gradient_kernel(block, gradients); });
}

void rope(const model::RopeRotation& rotation) {
  const int64_t steps = rope_steps(rotation);
  run_blocks(elementwise_blocks(steps), kElementwiseBlockSize,
             [&](const HostBlock& block) { rope_kernel(block, rotation, steps); });
}

}  // namespace

const model::KernelTable& host_kernels() {
  static const model::KernelTable table{.adamw = adamw,
                                        .cross_entropy = cross_entropy,
                                        .gelu = gelu_forward,
                                        .gelu_backward = gelu_backward,
                                        .norm = norm,
                                        .norm_backward = norm_backward,
                                        .swiglu = swiglu,
                                        .swiglu_backward = swiglu_backward,
                                        .rope = rope};
  return table;
}

}  // namespace stoker::cuda
