// CudaStreams: the DeviceStreams of a CUDA device.
//
// While the object exists, its work stream is the current stream of the calling thread, so that
// warm-up and capture use the same stream. docs/gpu.md states which parts have been run on a
// device.
//
// Threads: one.
#pragma once

#include <memory>

#include "daemon/cuda/device_streams.h"

namespace stoker::cuda {

// Throws c10::Error.
std::unique_ptr<DeviceStreams> open_cuda_streams(int device);

}  // namespace stoker::cuda
