// BatchShapes: the layout of each batch of a run inside its slot. With length buckets, a batch has
// the length of its bucket and is packed from the start of the slot. All other batches use the
// layout of the ring.
//
// Threads:   a value; immutable.
// Ownership: the plan must outlive this object.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"
#include "shared/ring/batch_layout.h"

namespace stoker::feed {

class BatchShapes {
 public:
  // All batches have this shape.
  BatchShapes(ring::BatchLayout all) : layouts_{std::move(all)} {}  // NOLINT: implicit by design
  // The layouts of the plan's buckets. `plan` must be a plan for `data`.
  BatchShapes(const data::Dataset& data, const data::order::SamplePlan& plan);

  // Never larger than the layout of data.spec(), for which the ring is created.
  const ring::BatchLayout& of(uint64_t ticket) const {
    return layouts_[maybe_plan_ == nullptr ? 0 : maybe_plan_->bucket_of(ticket)];
  }

 private:
  std::vector<ring::BatchLayout> layouts_;               // one per bucket, or a single one
  const data::order::SamplePlan* maybe_plan_ = nullptr;  // set only with buckets
};

}  // namespace stoker::feed
