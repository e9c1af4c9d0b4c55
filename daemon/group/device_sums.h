// DeviceSums: what a process group does with tensors of GPUs, made of the collectives of their backend.
// The sums in the tree have the same bytes as those of tensors in host memory: the backend moves the
// parts, and each rank adds its own.
//
// Threads, Blocking, Errors: as DeviceCollectives.
// Memory: for the ordered sum as much as the tensors, kept from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/group/device_collectives.h"

namespace stoker::group {

class DeviceSums {
 public:
  DeviceSums(std::unique_ptr<DeviceCollectives> collectives, int world_size)
      : world_size_(world_size), collectives_(std::move(collectives)) {}

  // As the methods of ProcessGroup. Tensors are contiguous and of the device.
  void broadcast(const at::Tensor& tensor, int root) { collectives_->broadcast(tensor, root); }
  void all_reduce_ordered(const std::vector<at::Tensor>& tensors);
  void all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends);
  void start_all_reduce(const at::Tensor& tensor) { collectives_->start_all_reduce(tensor); }
  void start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends);
  void finish_sums() { collectives_->finish_sums(); }

  bool is_complete() { return collectives_->is_complete(); }
  void abort() noexcept { collectives_->abort(); }

 private:
  void sum_equal_parts(const at::Tensor& flat, at::Tensor& scratch);
  void sum_rest(const at::Tensor& flat);

  const int world_size_;
  std::vector<at::Tensor> scratch_;  // by tensor of all_reduce_ordered()
  const std::unique_ptr<DeviceCollectives> collectives_;
};

}  // namespace stoker::group
