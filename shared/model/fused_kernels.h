// The fused kernels in use: models, tasks and the optimizer call them instead of LibTorch's operators
// for tensors of a device that has them. train.fused_kernels has a switch for each; none is in use by
// default.
//
// Threads: any; select them before anything is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/config/training_config.h"
#include "shared/model/kernel_table.h"

namespace stoker::model {

// The kernels of a device that are switched on.
KernelTable enabled_kernels(const KernelTable& all, const config::FusedKernelsConfig& config);

// Uses the kernels of the table; where it has null, LibTorch's operators. The choice is for devices of this
// type, and may not change between a forward pass and its backward pass.
void use_fused_kernels(c10::DeviceType type, const KernelTable& table);
const KernelTable& fused_kernels(c10::Device device);
// Same, for the kernels of forward passes, which compute in BF16: none without autocast to BF16.
const KernelTable& bf16_kernels(c10::Device device);

// Whether the tensor has this dtype and is contiguous and aligned as kernels need it.
bool has_kernel_layout(const at::Tensor& tensor, at::ScalarType dtype);
// The tensor if it has that layout, else a copy: a gradient can be any view.
at::Tensor with_kernel_layout(const at::Tensor& tensor, at::ScalarType dtype);

// The memory of a tensor; null if it is undefined. T is Bf16, or the tensor's type.
template <typename T = float>
T* kernel_pointer(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace stoker::model
