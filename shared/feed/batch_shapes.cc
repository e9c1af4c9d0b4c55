#include "shared/feed/batch_shapes.h"

#include "shared/dataset/length_buckets.h"

namespace stoker::feed {

BatchShapes::BatchShapes(const dataset::Dataset& data, const dataset::SamplePlan& plan) {
  const dataset::PlanSettings& settings = plan.settings();
  if (settings.maybe_buckets == nullptr) {
    layouts_.emplace_back(data.spec(), settings.batch);
    return;
  }
  maybe_plan_ = &plan;
  for (const dataset::LengthBuckets::Bucket& bucket : settings.maybe_buckets->buckets())
    layouts_.emplace_back(data.spec_of_length(bucket.length), settings.batch);
}

}  // namespace stoker::feed
