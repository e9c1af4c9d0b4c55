// Device: where training runs, from the word in train.device.
//
// `cpu` never loads CUDA. `cuda` and `auto` load libstoker_cuda.so, a module of its own because a
// process that loads LibTorch's CUDA part starts seconds later and hundreds of megabytes larger;
// `auto` takes the CPU where the module, a driver or a device is missing, and says so in the log.
//
// Threads: open_device() once, from one thread, before any other use of LibTorch.
#pragma once

#include <string>

#include <c10/core/Device.h>

#include "daemon/checkpoint/snapshot.h"
#include "daemon/cuda/cuda_module.h"
#include "shared/base/status.h"

namespace stoker::train {

// kInvalidArgument: the word names a device that this machine, driver or build does not have; says
// which of them.
Result<c10::Device> open_device(const std::string& word);

// How memory is locked that an open device copies to; nothing for the CPU.
Result<checkpoint::PinnedAllocator> make_pinned_allocator(c10::Device device);

// The module of an open CUDA device.
Result<const cuda::CudaModule*> load_cuda_module();

}  // namespace stoker::train
