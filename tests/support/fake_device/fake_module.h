// The function table of the fake device, as that of libstoker_cuda.so, for train::register_fake_module().
#pragma once

#include <cstdint>

#include "daemon/cuda/cuda_module.h"

namespace stoker::fake_device {

// The devices that it opens use schedules that follow from the seed.
const cuda::CudaModule* module_of_seed(uint64_t seed);

}  // namespace stoker::fake_device
