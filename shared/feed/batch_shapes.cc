#include "shared/feed/batch_shapes.h"

#include "shared/dataset/length_buckets.h"

namespace stoker::feed {

BatchShapes::BatchShapes(const dataset::Dataset& data, const dataset::SamplePlan& plan) {
  const dataset::PlanOptions& options = plan.options();
  if (options.maybe_buckets == nullptr) {
    layouts_.emplace_back(data.spec(), options.batch);
    return;
  }
  maybe_plan_ = &plan;
  for (const dataset::LengthBuckets::Bucket& bucket : options.maybe_buckets->buckets())
    layouts_.emplace_back(data.spec_of_length(bucket.length), options.batch);
}

}  // namespace stoker::feed
