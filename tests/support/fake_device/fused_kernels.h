// The fused kernels of the fake device: those compiled for the host, which run in the thread of the work
// stream as LibTorch's operators do. A graph contains them, with copies of their arguments, in order with
// the operators. A capture does not run them: what they write has no value before a replay.
//
// Threads: any; in one without a stream a kernel runs immediately.
#pragma once

#include "daemon/cuda/cuda_module.h"

namespace stoker::fake_device {

// See CudaModule::fused_kernels.
cuda::FusedKernels fused_kernels(int device);

}  // namespace stoker::fake_device
