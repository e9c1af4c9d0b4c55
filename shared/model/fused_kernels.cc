#include "shared/model/fused_kernels.h"

#include <cstdint>

#include <ATen/autocast_mode.h>

namespace stoker::model {
namespace {

KernelTable& table_of(c10::DeviceType type) {
  // Of the host for tests, else of CUDA.
  static KernelTable of_host, of_device;
  return type == c10::DeviceType::CPU ? of_host : of_device;
}

}  // namespace

KernelTable enabled_kernels(const KernelTable& all, const config::FusedKernelsConfig& config) {
  KernelTable enabled;
  if (config.adamw) enabled.adamw = all.adamw;
  if (config.cross_entropy) enabled.cross_entropy = all.cross_entropy;
  if (config.gelu) {
    enabled.gelu = all.gelu;
    enabled.gelu_backward = all.gelu_backward;
  }
  if (config.norm) {
    enabled.norm = all.norm;
    enabled.norm_backward = all.norm_backward;
  }
  if (config.rope) enabled.rope = all.rope;
  if (config.swiglu) {
    enabled.swiglu = all.swiglu;
    enabled.swiglu_backward = all.swiglu_backward;
  }
  return enabled;
}

void use_fused_kernels(c10::DeviceType type, const KernelTable& table) { table_of(type) = table; }

const KernelTable& fused_kernels(c10::Device device) { return table_of(device.type()); }

const KernelTable& bf16_kernels(c10::Device device) {
  static const KernelTable kNone;
  const bool is_bf16 = at::autocast::is_autocast_enabled(device.type()) &&
                       at::autocast::get_autocast_dtype(device.type()) == at::kBFloat16;
  return is_bf16 ? fused_kernels(device) : kNone;
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
