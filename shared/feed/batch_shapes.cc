#include "shared/feed/batch_shapes.h"

#include "shared/data/order/bucket_plan.h"

namespace stoker::feed {

BatchShapes::BatchShapes(const data::Dataset& data, const data::order::SamplePlan& plan) {
  const data::order::PlanOptions& options = plan.options();
  if (options.maybe_buckets == nullptr) {
    layouts_.emplace_back(data.spec(), options.batch);
    return;
  }
  maybe_plan_ = &plan;
  for (const data::order::LengthBuckets::Bucket& bucket : options.maybe_buckets->buckets())
    layouts_.emplace_back(data.spec_of_length(bucket.length), options.batch);
}

}  // namespace stoker::feed
