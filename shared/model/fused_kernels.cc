#include "shared/model/fused_kernels.h"

#include <atomic>
#include <cstdint>

#include <ATen/autocast_mode.h>

namespace stoker::model {
namespace {

std::atomic<const KernelTable*>& table_of(c10::DeviceType type) {
  // Of the host for tests, else of CUDA.
  static std::atomic<const KernelTable*> of_host{nullptr}, of_device{nullptr};
  return type == c10::DeviceType::CPU ? of_host : of_device;
}

}  // namespace

void use_fused_kernels(c10::DeviceType type, const KernelTable* maybe_table) {
  table_of(type).store(maybe_table);
}

const KernelTable* maybe_fused_kernels(c10::Device device) {
  return table_of(device.type()).load();
}

const KernelTable* maybe_bf16_kernels(c10::Device device) {
  const KernelTable* const maybe_table = maybe_fused_kernels(device);
  if (maybe_table == nullptr || !at::autocast::is_autocast_enabled(device.type())) return nullptr;
  return at::autocast::get_autocast_dtype(device.type()) == at::kBFloat16 ? maybe_table : nullptr;
}

bool has_kernel_layout(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.scalar_type() == dtype && tensor.is_contiguous() &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

at::Tensor with_kernel_layout(const at::Tensor& tensor, at::ScalarType dtype) {
  if (has_kernel_layout(tensor, dtype)) return tensor;
  return tensor.to(dtype).clone(at::MemoryFormat::Contiguous);
}

}  // namespace stoker::model
