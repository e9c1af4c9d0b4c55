#include "daemon/train/group_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "shared/base/hash.h"
#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

constexpr ThreadActivity kWaitForRanks{.operation = "wait for other ranks", .is_waiting = true};

}  // namespace

GroupStep::GroupStep(group::ProcessGroup& group, int64_t micro_batches,
                     std::vector<at::Tensor> buffers)
    : group_(group),
      share_{.tickets_per_step = static_cast<uint64_t>(micro_batches),
             .rank = static_cast<uint64_t>(group.rank()),
             .world_size = static_cast<uint64_t>(group.world_size())},
      buffers_(std::move(buffers)) {}

Result<group::ControlRecord> GroupStep::sum(const std::vector<at::Tensor>& gradients,
                                            const std::vector<at::Tensor>& scalars,
                                            const group::ControlRecord& own,
                                            const group::RankReport& report,
                                            const std::stop_token& stop,
                                            std::vector<char>* maybe_flags) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = gradients;
  for (const at::Tensor& buffer : buffers_) {
    if (!is_chief()) buffer.zero_();  // the sum is then that of the chief
    tensors.push_back(buffer);
  }
  return sum_all(std::move(tensors), scalars, own, report, stop, maybe_flags);
}

Result<group::ControlRecord> GroupStep::exchange(const group::ControlRecord& own,
                                                 const group::RankReport& report,
                                                 const std::stop_token& stop) {
  return sum_all({}, {}, own, report, stop, nullptr);
}

// In host memory, scalars, record and flags are one tensor, next to the gradients in the same collective. The
// scalars of a GPU are summed there, so that the host need not wait for them. The others stay in host
// memory: the ranks need it before the next step, and find in its exchange those that are lost.
Result<group::ControlRecord> GroupStep::sum_all(std::vector<at::Tensor> tensors,
                                                const std::vector<at::Tensor>& scalars,
                                                const group::ControlRecord& own,
                                                const group::RankReport& report,
                                                const std::stop_token& stop,
                                                std::vector<char>* maybe_flags) {
  const at::NoGradGuard no_grad;
  const ScopedActivity waiting(kWaitForRanks);
  const bool is_on_device = !scalars.empty() && !scalars.front().is_cpu();
  if (is_on_device) {
    const at::Tensor sums = at::stack(scalars);
    tensors.push_back(sums);
    STOKER_RETURN_IF_ERROR(group_.all_reduce_ordered(tensors, stop));
    for (size_t i = 0; i < scalars.size(); ++i)
      scalars[i].copy_(sums.select(0, static_cast<int64_t>(i)));
    tensors.clear();
  }
  const size_t num_scalars = is_on_device ? 0 : scalars.size();
  group::ControlNumbers record = to_numbers(own, report, group_.rank(), group_.world_size());
  const size_t num_flags = maybe_flags == nullptr ? 0 : maybe_flags->size();
  const at::Tensor tail =
      at::empty({static_cast<int64_t>(num_scalars + record.size() + num_flags)}, at::kDouble);
  double* const numbers = tail.mutable_data_ptr<double>();
  for (size_t i = 0; i < num_scalars; ++i) numbers[i] = scalars[i].item<double>();
  std::ranges::copy(record, numbers + num_scalars);
  double* const flags = numbers + num_scalars + record.size();
  for (size_t i = 0; i < num_flags; ++i) flags[i] = (*maybe_flags)[i];

  tensors.push_back(tail);
  STOKER_RETURN_IF_ERROR(group_.all_reduce_ordered(tensors, stop));

  for (size_t i = 0; i < num_scalars; ++i) scalars[i].fill_(numbers[i]);
  std::copy_n(numbers + num_scalars, record.size(), record.begin());
  for (size_t i = 0; i < num_flags; ++i) (*maybe_flags)[i] = flags[i] > 0 ? 1 : 0;
  return group::parse_sum(record, own.step, group_.world_size());
}

std::vector<at::Tensor> shared_buffers(const model::Model& model) {
  std::vector<at::Tensor> shared;
  for (const at::Tensor& buffer : model.buffers())
    if (buffer.defined() && buffer.numel() > 0 && buffer.scalar_type() != at::kBool &&
        buffer.is_contiguous())
      shared.push_back(buffer);
  return shared;
}

uint64_t checksum_of_parameters(const model::Model& model) {
  uint32_t checksum = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor dense = parameter.detach().contiguous().cpu();
    checksum = crc32c(std::span(static_cast<const std::byte*>(dense.const_data_ptr()),
                                static_cast<size_t>(dense.nbytes())),
                      checksum);
  }
  return (uint64_t{1} << 32) + checksum;
}

}  // namespace stoker::train
