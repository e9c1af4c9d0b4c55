#include "daemon/train/group_step.h"

#include <algorithm>
#include <cstdint>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

constexpr ThreadActivity kWaitForRanks{.operation = "wait for other ranks", .is_waiting = true};

}  // namespace

GroupStep::GroupStep(group::ProcessGroup& group, int64_t micro_batches)
    : group_(group),
      share_{.tickets_per_step = static_cast<uint64_t>(micro_batches),
             .rank = static_cast<uint64_t>(group.rank()),
             .world_size = static_cast<uint64_t>(group.world_size())} {}

// Scalars and record are one tensor, next to the gradients in the same collective.
Result<group::ControlRecord> GroupStep::sum(const std::vector<at::Tensor>& gradients,
                                            const std::vector<at::Tensor>& scalars,
                                            const group::ControlRecord& own,
                                            const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  group::ControlNumbers record = to_numbers(own);
  const at::Tensor tail =
      at::empty({static_cast<int64_t>(scalars.size() + record.size())}, at::kDouble);
  double* const numbers = tail.mutable_data_ptr<double>();
  for (size_t i = 0; i < scalars.size(); ++i) numbers[i] = scalars[i].item<double>();
  std::ranges::copy(record, numbers + scalars.size());

  std::vector<at::Tensor> tensors = gradients;
  tensors.push_back(tail);
  {
    const ScopedActivity waiting(kWaitForRanks);
    STOKER_RETURN_IF_ERROR(group_.all_reduce_ordered(tensors, stop));
  }

  for (size_t i = 0; i < scalars.size(); ++i) scalars[i].fill_(numbers[i]);
  std::copy_n(numbers + scalars.size(), record.size(), record.begin());
  return group::parse_sum(record, own.step, group_.world_size());
}

}  // namespace stoker::train
