// HostKernelsScope: while it exists, the fused kernels compiled for the host are in use on the CPU.
#pragma once

#include "daemon/cuda/kernels/host_kernels.h"
#include "shared/model/fused_kernels.h"

namespace stoker::cuda {

class HostKernelsScope {
 public:
  HostKernelsScope() { model::use_fused_kernels(c10::DeviceType::CPU, host_kernels()); }
  ~HostKernelsScope() { model::use_fused_kernels(c10::DeviceType::CPU, {}); }
  HostKernelsScope(const HostKernelsScope&) = delete;
  HostKernelsScope& operator=(const HostKernelsScope&) = delete;
};

}  // namespace stoker::cuda
