// BatchShapes: how each batch of a run lies in its slot: of sequences in buckets, as long as the
// bucket's, packed from the slot's beginning; of all others, as the ring says.
//
// Threads:  a value; immutable.
// Owner:    the plan must outlive this object.
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
  BatchShapes(ring::BatchLayout all) : layouts_{std::move(all)} {}  // NOLINT: it is one
  // Those of the plan, which is for these data.
  BatchShapes(const data::Dataset& data, const data::order::SamplePlan& plan);

  // None is larger than the layout of data.spec(), for which a ring is made.
  const ring::BatchLayout& of(uint64_t ticket) const {
    return layouts_[maybe_plan_ == nullptr ? 0 : maybe_plan_->bucket_of(ticket)];
  }

 private:
  std::vector<ring::BatchLayout> layouts_;               // of the buckets, or one
  const data::order::SamplePlan* maybe_plan_ = nullptr;  // with buckets
};

}  // namespace stoker::feed
