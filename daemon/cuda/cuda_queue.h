// CudaQueue: the DeviceQueue of a CUDA device.
//
// While it lives, the stream of the work is the calling thread's current stream, so that warm-up and
// capture are on the same one.
//
// Threads: one. Written against CUDA's documentation; docs/gpu.md says what of it was run.
#pragma once

#include <memory>

#include "daemon/cuda/device_queue.h"

namespace stoker::cuda {

struct QueueOptions {
  int device = 0;
  size_t slot_bytes = 0;
  size_t slots = 0;  // of the ring
};

// Throws c10::Error.
std::unique_ptr<DeviceQueue> open_cuda_queue(const QueueOptions& options);

}  // namespace stoker::cuda
