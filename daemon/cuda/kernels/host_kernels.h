// The kernels compiled for the host: the same source as on a device, one thread for one block after
// the other. For tests.
#pragma once

#include "shared/model/kernel_table.h"

namespace stoker::cuda {

const model::KernelTable& host_kernels();

}  // namespace stoker::cuda
