// Device: opens the device that train.device selects.
//
// `cpu` never loads CUDA. `cuda` and `auto` load libstoker_cuda.so. It is a separate module because
// loading LibTorch's CUDA libraries adds seconds to the start and hundreds of megabytes to the
// process. `auto` falls back to the CPU if the module, a driver or a device is missing, and logs
// the reason. `fake` is the CPU as an asynchronous device, in programs of tests that register it
// (tests/support/fake_device).
//
// Threads: register_fake_module() before main(). open_device() once, from one thread, before any other use of LibTorch.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "daemon/cuda/cuda_module.h"
#include "daemon/group/device_collectives.h"
#include "daemon/group/device_share.h"
#include "daemon/writer/snapshot.h"
#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::train {

using FakeModule = const cuda::CudaModule* (*)(uint64_t seed);
void register_fake_module(FakeModule module);

// kInvalidArgument: this program does not have the device.
Status check_supported_by_build(const config::DeviceConfig& device);

// kInvalidArgument: the device does not exist or is not supported by this machine, driver or build;
// the message states the cause.
Result<c10::Device> open_device(const config::DeviceConfig& device);

// The GPU of a rank of a group, or why it has none.
group::RankDevice find_rank_device(int local_rank, int local_world_size);
// The collectives of ranks for their GPUs, of which this one has cuda:`index`, as find_rank_device() has found.
Result<group::OpenCollectives> find_collectives(int index);

// Page-locks host memory that an open device copies to. Empty for the CPU.
Result<writer::PinnedAllocator> make_pinned_allocator(const config::DeviceConfig& config,
                                                      c10::Device device);

// Returns the memory that LibTorch's allocator has reserved on an open device, but that no tensor uses.
// Call it when nothing runs there. Does nothing for the CPU. Returns what is still in use.
Result<cuda::DeviceUsage> release_device_memory(const config::DeviceConfig& config,
                                                c10::Device device);

// Uses those fused kernels of an open device that `config.fused_kernels` switches on, else LibTorch's. Logs
// the reason if there are none.
void select_fused_kernels(const config::TrainConfig& config, c10::Device device);

// The CUDA module; loads it if necessary. kNotFound: it cannot be loaded. kMismatch: it is not a
// stoker module or belongs to another version.
Result<const cuda::CudaModule*> load_cuda_module();
// The functions of a device that was opened for `config`; null for the CPU.
Result<const cuda::CudaModule*> module_of(const config::DeviceConfig& config, c10::Device device);

}  // namespace stoker::train
