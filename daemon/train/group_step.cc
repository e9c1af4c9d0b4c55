#include "daemon/train/group_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

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
                                            const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = gradients;
  for (const at::Tensor& buffer : buffers_) {
    if (!is_chief()) buffer.zero_();  // the sum is then that of the chief
    tensors.push_back(buffer);
  }
  return sum_all(std::move(tensors), scalars, own, report, stop);
}

Result<group::ControlRecord> GroupStep::exchange(const group::ControlRecord& own,
                                                 const group::RankReport& report,
                                                 const std::stop_token& stop) {
  return sum_all({}, {}, own, report, stop);
}

// Scalars and record are one tensor, next to the gradients in the same collective.
Result<group::ControlRecord> GroupStep::sum_all(std::vector<at::Tensor> tensors,
                                                const std::vector<at::Tensor>& scalars,
                                                const group::ControlRecord& own,
                                                const group::RankReport& report,
                                                const std::stop_token& stop) {
  const at::NoGradGuard no_grad;
  group::ControlNumbers record = to_numbers(own, report, group_.rank(), group_.world_size());
  const at::Tensor tail =
      at::empty({static_cast<int64_t>(scalars.size() + record.size())}, at::kDouble);
  double* const numbers = tail.mutable_data_ptr<double>();
  for (size_t i = 0; i < scalars.size(); ++i) numbers[i] = scalars[i].item<double>();
  std::ranges::copy(record, numbers + scalars.size());

  tensors.push_back(tail);
  {
    const ScopedActivity waiting(kWaitForRanks);
    STOKER_RETURN_IF_ERROR(group_.all_reduce_ordered(tensors, stop));
  }

  for (size_t i = 0; i < scalars.size(); ++i) scalars[i].fill_(numbers[i]);
  std::copy_n(numbers + scalars.size(), record.size(), record.begin());
  return group::parse_sum(record, own.step, group_.world_size());
}

std::vector<at::Tensor> shared_buffers(const model::Model& model) {
  std::vector<at::Tensor> shared;
  for (const at::Tensor& buffer : model.buffers())
    if (buffer.defined() && buffer.numel() > 0 && buffer.scalar_type() != at::kBool &&
        buffer.is_contiguous() && buffer.device().is_cpu())
      shared.push_back(buffer);
  return shared;
}

uint64_t checksum_of_parameters(const model::Model& model) {
  uint32_t checksum = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    const at::Tensor dense = parameter.detach().contiguous();
    checksum = crc32c(std::span(static_cast<const std::byte*>(dense.const_data_ptr()),
                                static_cast<size_t>(dense.nbytes())),
                      checksum);
  }
  return (uint64_t{1} << 32) + checksum;
}

}  // namespace stoker::train
