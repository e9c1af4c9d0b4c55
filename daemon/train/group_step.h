// GroupStep: the end of a step that the ranks of a group share. Sums gradients, loss and training
// metric over the ranks, and with them exchanges what the ranks must agree on.
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
#include "shared/ring/ticket_share.h"

namespace stoker::train {

class GroupStep {
 public:
  // `micro_batches`: per step, over all ranks, whose number divides it.
  GroupStep(group::ProcessGroup& group, int64_t micro_batches);

  bool is_chief() const { return group_.is_chief(); }
  // The micro-batches of this rank.
  const ring::TicketShare& share() const { return share_; }

  // Overwrites `gradients` and `scalars` (F64) by their sums over all ranks; returns the sum of the
  // records.
  Result<group::ControlRecord> sum(const std::vector<at::Tensor>& gradients,
                                   const std::vector<at::Tensor>& scalars,
                                   const group::ControlRecord& own, const std::stop_token& stop);
  // Exchanges the records only, while no step is done.
  Result<group::ControlRecord> exchange(const group::ControlRecord& own,
                                        const std::stop_token& stop) {
    return sum({}, {}, own, stop);
  }

 private:
  group::ProcessGroup& group_;
  const ring::TicketShare share_;
};

}  // namespace stoker::train
