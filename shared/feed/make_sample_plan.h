// make_plan_options: the sample plan of a run. One function, so that stokerd, stoker-feed and stokerctl
// plan the same.
//
// Threads: any.
// Errors:  kMismatch: data or weights are not what the configuration says. kInvalidArgument: with
//          feed.last_batch: drop, a batch larger than an epoch or than a bucket. load_config() has
//          checked the rest.
#pragma once

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/sample_weights.h"

namespace stoker::feed {

// Of a data set that grows: what it is now is trained on from this ticket on, with which this epoch
// begins.
struct PlanStart {
  uint64_t ticket = 0;
  uint64_t epoch = 0;
  bool operator==(const PlanStart&) const = default;
};

// `data` is data.train; `weights` are of its sets that have a sample_weights_path.
Result<dataset::PlanOptions> make_plan_options(const config::Config& config,
                                               const dataset::Dataset& data,
                                               const SampleWeights& weights,
                                               const PlanStart& start = {});

// The plan as it is from `ticket` on, by the weights that stokerd has kept for it. `began`: where
// that of this data begins.
Result<dataset::SamplePlan> load_sample_plan(const config::Config& config,
                                             const dataset::Dataset& data,
                                             const std::string& index_dir, uint64_t ticket,
                                             const PlanStart& start = {});

}  // namespace stoker::feed
