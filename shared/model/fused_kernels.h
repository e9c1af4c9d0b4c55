// The fused kernels in use: models, tasks and the optimizer call them instead of LibTorch's operators
// for tensors of a device that has them. None by default.
//
// Threads: any; select them before anything is computed.
#pragma once

#include <ATen/core/Tensor.h>

#include "shared/model/kernel_table.h"

namespace stoker::model {

// `maybe_table` must outlive its use, which includes backward passes; null: LibTorch's kernels.
void use_fused_kernels(c10::DeviceType type, const KernelTable* maybe_table);
// Null: none are in use for this device.
const KernelTable* maybe_fused_kernels(c10::Device device);
// Same, for the kernels of forward passes, which compute in BF16: null also without autocast to BF16.
const KernelTable* maybe_bf16_kernels(c10::Device device);

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
