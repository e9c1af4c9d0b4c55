// open_nccl_collectives: the collectives of NCCL, through LibTorch's process group for it.
//
// Threads, Blocking, Errors: see DeviceCollectives. Opening waits until all ranks have connected.
//
// NCCL's own handling of errors is off, unless the environment sets it: LibTorch's ends the process with
// SIGABRT at a timeout, before this rank can say which one it has lost.
#pragma once

#include <memory>

#include "daemon/group/device_collectives.h"

namespace stoker::cuda {

// Whether the header that this was compiled with belongs to the NCCL that LibTorch uses; otherwise nothing else
// may be called.
bool is_nccl_of_libtorch();

std::unique_ptr<group::DeviceCollectives> open_nccl_collectives(
    int device, const group::CollectivesOptions& options);

}  // namespace stoker::cuda
