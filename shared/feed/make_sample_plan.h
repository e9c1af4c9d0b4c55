// make_plan_options: the sample plan of a run. One function, so that stokerd, stoker-feed and stokerctl
// plan the same.
//
// Threads: any.
// Errors:  kMismatch: data or weights are not what the configuration says. kInvalidArgument: with
//          feed.last_batch: drop, a batch larger than an epoch or than a bucket. load_config() has
//          checked the rest.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/sample_plan.h"

namespace stoker::feed {

// Sample weights: the numbers by which samples of sets with sample_weights_path are drawn, through the
// life of a run.
//
// stokerd reads the users' files when it starts and keeps what it read beside the index, by the
// ticket from which on it holds; readers and `stokerctl show-batch` take what is kept. So a file may
// be replaced at any time, its numbers come in at the next start, and what was drawn before can
// still be told.
//
// Threads: any; snapshot_sample_weights() by the one stokerd of the run directory only.
// Errors:  those of sample_weights_file.h.
inline constexpr uint64_t kLatestTicket = ~uint64_t{0};

using SampleWeights = std::map<std::string, std::vector<double>>;  // by the set's name

// From the users' files. `data` is data.train.
Result<SampleWeights> read_sample_weights(const config::Config& config, const data::Dataset& data);
// `ticket` is the first that is drawn by them.
Status snapshot_sample_weights(const SampleWeights& weights, const std::string& index_dir,
                               uint64_t ticket);
// Those that hold for the ticket. kNotFound: none were kept for it.
Result<SampleWeights> load_sample_weights(const config::Config& config,
                                          const std::string& index_dir, uint64_t ticket);

// Of a data set that grows: what it is now is trained on from this ticket on, with which this epoch
// begins.
struct PlanStart {
  uint64_t ticket = 0;
  uint64_t epoch = 0;
  bool operator==(const PlanStart&) const = default;
};

// `data` is data.train; `weights` are of its sets that have a sample_weights_path.
Result<data::order::PlanOptions> make_plan_options(const config::Config& config,
                                                   const data::Dataset& data,
                                                   const SampleWeights& weights,
                                                   const PlanStart& start = {});

// The plan as it is from `ticket` on, by the weights that stokerd has kept for it. `began`: where
// that of this data begins.
Result<data::order::SamplePlan> load_sample_plan(const config::Config& config,
                                                 const data::Dataset& data,
                                                 const std::string& index_dir, uint64_t ticket,
                                                 const PlanStart& start = {});

// Logs one line that says how much of what a run computes is padding, and how much it were
// without feed.bucket_boundaries. Nothing where samples have one length.
void log_padding_ratio(const data::Dataset& data, const data::order::PlanOptions& options);

}  // namespace stoker::feed
