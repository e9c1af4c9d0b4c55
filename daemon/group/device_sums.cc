#include "daemon/group/device_sums.h"

#include <cstddef>

#include <ATen/ops/empty.h>

#include "daemon/group/ordered_sum.h"

namespace stoker::group {
namespace {

std::vector<at::Tensor> equal_parts(const at::Tensor& flat, int count) {
  const int64_t size = flat.numel() / count;
  std::vector<at::Tensor> parts;
  for (int part = 0; part < count; ++part) parts.push_back(flat.narrow(0, size * part, size));
  return parts;
}

}  // namespace

// The backend exchanges parts of one size only. What is left is less than an element for each rank.
void DeviceSums::all_reduce_ordered(const std::vector<at::Tensor>& tensors) {
  if (scratch_.size() < tensors.size()) scratch_.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor flat = tensors[i].detach().view({-1});
    const int64_t rest = flat.numel() % world_size_;
    const int64_t equal = flat.numel() - rest;
    if (equal > 0) sum_equal_parts(flat.narrow(0, 0, equal), scratch_[i]);
    if (rest > 0) sum_rest(flat.narrow(0, equal, rest));
  }
}

// Each rank sums one part, and sends the sum to all.
void DeviceSums::sum_equal_parts(const at::Tensor& flat, at::Tensor& scratch) {
  if (!scratch.defined() || scratch.scalar_type() != flat.scalar_type() ||
      scratch.numel() < flat.numel())
    scratch = at::empty({flat.numel()}, flat.options());
  const at::Tensor received = scratch.narrow(0, 0, flat.numel());
  collectives_->all_to_all(received, flat);
  collectives_->all_gather(flat, sum_ordered(equal_parts(received, world_size_)));
}

// Each rank sums all of it.
void DeviceSums::sum_rest(const at::Tensor& flat) {
  const at::Tensor received = at::empty({flat.numel() * world_size_}, flat.options());
  collectives_->all_gather(received, flat);
  flat.copy_(sum_ordered(equal_parts(received, world_size_)));
}

void DeviceSums::all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends) {
  for (int of_rank = 0; of_rank < world_size_; ++of_rank) {
    const at::Tensor part = part_of_rank(flat, ends, of_rank);
    if (part.numel() > 0) collectives_->broadcast(part, of_rank);
  }
}

// Shards have parts of different sizes in a bucket, most of which belong to one rank.
void DeviceSums::start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends) {
  for (int of_rank = 0; of_rank < world_size_; ++of_rank) {
    const at::Tensor part = part_of_rank(flat, ends, of_rank);
    if (part.numel() > 0) collectives_->start_reduce(part, of_rank);
  }
}

}  // namespace stoker::group
