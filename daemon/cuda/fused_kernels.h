// The fused kernels of this module (daemon/cuda/kernels), which it has if it was built with nvcc.
#pragma once

#include "daemon/cuda/cuda_module.h"

namespace stoker::cuda {

// See CudaModule::fused_kernels.
FusedKernels fused_kernels(int device);

}  // namespace stoker::cuda
