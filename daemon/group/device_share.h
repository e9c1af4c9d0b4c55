// The GPUs of a group: which one each rank has, and whether all ranks have their own.
//
// Threads: values; pure functions, except no_gpu(), which opens files.
// Errors:  kNotFound: there is no GPU. kInvalidArgument: too few for the ranks.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::group {

// Why a process sees no GPU: hidden by `visible_devices` (CUDA_VISIBLE_DEVICES; null: unset), no driver, or
// which device node is missing or cannot be opened. `root` is "/" except in tests.
Status no_gpu(const char* visible_devices, const std::string& root = "/");

// The index of the GPU of a rank among the `count` that it sees. A launcher can let each rank see its own
// GPU only, which then has index 0.
Result<int> device_index_of_rank(int local_rank, int local_world_size, int count);

// The GPU that a rank would use.
struct RankDevice {
  int index = 0;
  std::string uuid;    // empty: it has none
  std::string reason;  // why
  bool operator==(const RankDevice&) const = default;
};
std::string to_text(const RankDevice& device);
Result<RankDevice> parse_rank_device(const std::string& text);

// What all ranks use.
struct DeviceChoice {
  bool uses_gpus = false;
  std::string reason;  // why not
  bool operator==(const DeviceChoice&) const = default;
};
// For the other ranks, the error too.
std::string to_text(const Result<DeviceChoice>& choice);
Result<DeviceChoice> parse_device_choice(const std::string& text);

// GPUs if each rank has its own; otherwise the CPU, or kInvalidArgument if `needed_by` is a setting that asks
// for GPUs ("train.device: cuda") and not empty. The reason names the rank that has none, or two ranks of the
// same one. `name_of`: "rank 3 (node-2, pid 4711)".
Result<DeviceChoice> choose_devices(const std::vector<RankDevice>& ranks,
                                    const std::string& needed_by,
                                    const std::function<std::string(int)>& name_of);

}  // namespace stoker::group
