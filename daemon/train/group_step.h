// GroupStep: the end of a step that the ranks of a group share. Sums gradients, loss and training
// metric over the ranks, and with them exchanges what the ranks must agree on. Buffers of the model,
// such as the running statistics of batch norm, are those of the chief after each step: each rank would
// have those of its micro-batches.
//
// Threads:  the trainer thread only.
// Blocking: until the other ranks are at the same step, at most for the group's timeout.
// Owner:    the group must outlive this object.
// Errors:   as ProcessGroup. After an error the tensors are undefined and the group has ended.
#pragma once

#include <stop_token>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/group/control_record.h"
#include "daemon/group/process_group.h"
#include "shared/base/status.h"
#include "shared/model/model.h"
#include "shared/ring/ticket_share.h"

namespace stoker::train {

class GroupStep {
 public:
  // `micro_batches`: per step, over all ranks, whose number divides it.
  GroupStep(group::ProcessGroup& group, int64_t micro_batches,
            std::vector<at::Tensor> buffers = {});

  bool is_chief() const { return group_.is_chief(); }
  // The micro-batches of this rank.
  const ring::TicketShare& share() const { return share_; }

  // Overwrites `gradients` and `scalars` (F64) by their sums over all ranks, and the buffers by those
  // of the chief; returns the sum of the records. `maybe_flags`: become 1 if they are on any rank.
  Result<group::ControlRecord> sum(const std::vector<at::Tensor>& gradients,
                                   const std::vector<at::Tensor>& scalars,
                                   const group::ControlRecord& own, const group::RankReport& report,
                                   const std::stop_token& stop,
                                   std::vector<char>* maybe_flags = nullptr);
  // Exchanges the records only, while no step is done.
  Result<group::ControlRecord> exchange(const group::ControlRecord& own,
                                        const group::RankReport& report,
                                        const std::stop_token& stop);
  group::ProcessGroup& group() const { return group_; }

 private:
  Result<group::ControlRecord> sum_all(std::vector<at::Tensor> tensors,
                                       const std::vector<at::Tensor>& scalars,
                                       const group::ControlRecord& own,
                                       const group::RankReport& report, const std::stop_token& stop,
                                       std::vector<char>* maybe_flags);

  group::ProcessGroup& group_;
  const ring::TicketShare share_;
  const std::vector<at::Tensor> buffers_;
};

// The buffers of a model that a step can change and GroupStep replaces by those of the chief: numbers in dense memory.
std::vector<at::Tensor> shared_buffers(const model::Model& model);

// Checksum of the parameters of a model; never 0. Waits for the device.
uint64_t checksum_of_parameters(const model::Model& model);

}  // namespace stoker::train
