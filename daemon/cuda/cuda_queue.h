// CudaQueue: the DeviceQueue of a CUDA device.
//
// While the queue exists, its work stream is the current stream of the calling thread, so that
// warm-up and capture use the same stream. docs/gpu.md states which parts have been run on a
// device.
//
// Threads: one.
#pragma once

#include <memory>

#include "daemon/cuda/device_queue.h"

namespace stoker::cuda {

struct QueueOptions {
  int device = 0;
  size_t slot_bytes = 0;
  size_t slots = 0;  // slots of the ring
};

// Throws c10::Error.
std::unique_ptr<DeviceQueue> open_cuda_queue(const QueueOptions& options);

}  // namespace stoker::cuda
