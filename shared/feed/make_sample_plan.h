// make_plan_options: the sample plan of a run. stokerd, stoker-feed and stokerctl share this
// function so that they produce identical plans.
//
// Threads: any.
// Errors:  kMismatch: data or weights do not match the configuration. kInvalidArgument: with
//          feed.last_batch: drop, a batch is larger than an epoch or a bucket. load_config() has
//          checked everything else.
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

// Sample weights: the sampling weights of datasets with sample_weights_path, over the lifetime of a
// run.
//
// stokerd reads the user's files at start and saves a snapshot next to the index, under the first
// ticket to which it applies. Workers and `stokerctl show-batch` read the snapshots. A weights file
// can therefore be replaced at any time: the new weights apply from the next start, and earlier
// batches stay reproducible.
//
// Threads: any. Only the stokerd of the run directory calls snapshot_sample_weights().
// Errors:  those of sample_weights_file.h.
inline constexpr uint64_t kLatestTicket = ~uint64_t{0};

using SampleWeights = std::map<std::string, std::vector<double>>;  // by dataset name

// Reads the user's files. `data`: as for make_plan_options().
Result<SampleWeights> read_sample_weights(const config::Config& config, const data::Dataset& data);
// `ticket` is the first ticket that is sampled with these weights.
Status snapshot_sample_weights(const SampleWeights& weights, const std::string& index_dir,
                               uint64_t ticket);
// The snapshot that applies to `ticket`. kNotFound: there is none.
Result<SampleWeights> load_sample_weights(const config::Config& config,
                                          const std::string& index_dir, uint64_t ticket);

// For refreshable data: the ticket and the epoch at which training on the current dataset version
// starts. The epoch starts at this ticket.
struct PlanStart {
  uint64_t ticket = 0;
  uint64_t epoch = 0;
  bool operator==(const PlanStart&) const = default;
};

// `data` is data.train, or of a mixture with a stream the datasets with an index. `weights` holds the
// weights of its datasets with a sample_weights_path.
Result<data::order::PlanOptions> make_plan_options(const config::Config& config,
                                                   const data::Dataset& data,
                                                   const SampleWeights& weights,
                                                   const PlanStart& start = {});

// Of data.train without an index: the positions of a stream in order.
data::order::PlanOptions make_stream_plan_options(const config::Config& config);

// The plan from `ticket` on, with the weights snapshot for that ticket. `start`: where the plan of
// this dataset version starts.
Result<data::order::SamplePlan> load_sample_plan(const config::Config& config,
                                                 const data::Dataset& data,
                                                 const std::string& index_dir, uint64_t ticket,
                                                 const PlanStart& start = {});

// The files of the samples planned for the first `rows` rows of a ticket, each once, in order.
std::vector<std::string> files_of(const data::Dataset& data, const data::order::SamplePlan& plan,
                                  uint64_t ticket, uint64_t rows);

// Logs the fraction of padding in the computation, with and without feed.bucket_boundaries. Logs
// nothing if all samples have the same length.
void log_padding_ratio(const data::Dataset& data, const data::order::PlanOptions& options);

}  // namespace stoker::feed
