// Dry run of CUDA: a runtime library of CUDA, cuBLAS, cuDNN and NCCL whose kernels do nothing. With it, LibTorch's
// CUDA part and stoker's CUDA module run on a machine without a GPU as they are: streams, events, memory,
// captures and their rules, generators, everything but the numbers. A program that links it, or loads it with
// LD_PRELOAD, has one device.
//
// Copies and memset are executed immediately, in the memory of the host, which is zero at first; events are
// complete when they are recorded. Errors of captures are those of CUDA: a call that a capture forbids
// invalidates it.
//
// Environment: STOKER_DRY_RUN_DEVICES, the number of devices; STOKER_DRY_RUN_BYTES, the memory of one;
//              STOKER_DRY_RUN_FAULT, how many submissions are executed before a kernel fails.
// Threads:     any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::cuda {

struct DryRunCounts {
  uint64_t kernels = 0;           // outside of captures
  uint64_t captured_kernels = 0;  // and copies
  uint64_t graph_launches = 0;
  uint64_t graphs = 0;       // that exist
  uint64_t waits = 0;        // of the host for the device or a stream
  uint64_t allocations = 0;  // of device memory
  uint64_t device_bytes = 0, host_bytes = 0, registered_ranges = 0;
};
DryRunCounts dry_run_counts();

// Errors that CUDA does not report: work on the default stream during a capture, which is then not in the
// graph; a captured copy of memory that is not page-locked; objects that do not exist.
std::vector<std::string> dry_run_errors();

}  // namespace stoker::cuda
