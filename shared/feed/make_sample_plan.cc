#include "shared/feed/make_sample_plan.h"

#include <memory>
#include <utility>
#include <variant>

#include "shared/dataset/length_buckets.h"

namespace stoker::feed {
namespace {

Result<dataset::PlannedDataset> planned_dataset(const std::string& name,
                                                const config::DatasetConfig& set, uint64_t size,
                                                const SampleWeights& weights) {
  dataset::PlannedDataset planned{
      .size = size, .repeat = set.repeat, .weight = 0, .sample_weights = {}};
  if (set.sample_weights_path.empty()) return planned;
  const auto own = weights.find(name);
  if (own == weights.end() || own->second.size() != size)
    return Status(StatusCode::kMismatch, "data." + name +
                                             ": its weights are not one for each of its " +
                                             std::to_string(size) + " samples");
  planned.sample_weights = own->second;
  return planned;
}

Result<std::vector<dataset::PlannedDataset>> planned_datasets(const config::Config& config,
                                                              const dataset::Dataset& data,
                                                              const SampleWeights& weights) {
  const std::vector<std::string> names = config::sampled_datasets(config);
  const std::vector<uint64_t> sizes = data.component_sizes();
  const auto* const mixture = std::get_if<config::Mixture>(&config.data.at("train").source);
  if (sizes.size() != names.size() ||
      (mixture != nullptr && mixture->shares.size() != names.size()))
    return Status(StatusCode::kMismatch, "data.train: the data is not what the configuration says");
  std::vector<dataset::PlannedDataset> datasets;
  for (size_t i = 0; i < names.size(); ++i) {
    STOKER_ASSIGN_OR_RETURN(auto planned,
                            planned_dataset(names[i], config.data.at(names[i]), sizes[i], weights));
    if (mixture != nullptr) planned.weight = mixture->shares[i].second;
    datasets.push_back(std::move(planned));
  }
  return datasets;
}

// The dataset's limit holds for its samples; repeated they may be too many.
Status check_epoch(const dataset::PlanOptions& options) {
  uint64_t epoch = 0;
  for (const dataset::PlannedDataset& set : options.datasets) {
    if (set.size > (dataset::kMaxPlanSize - epoch) / set.repeat)
      return Status(StatusCode::kInvalidArgument,
                    "data.train: an epoch of its samples is too long");
    epoch += set.size * set.repeat;
  }
  if (options.last_batch == config::LastBatchPolicy::kDrop && epoch < options.batch * options.world)
    return Status(StatusCode::kInvalidArgument,
                  "feed.last_batch: drop leaves nothing of an epoch of " + std::to_string(epoch) +
                      " samples, fewer than the " + std::to_string(options.batch) +
                      " of train.micro_batch_size; set it to carry_over or pad");
  return {};
}

Result<std::shared_ptr<const dataset::LengthBuckets>> length_buckets(const config::FeedConfig& feed,
                                                                     const dataset::Dataset& data,
                                                                     uint64_t batch) {
  const auto wrong = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "feed.bucket_boundaries: " + what);
  };
  if (data.max_length() == 0) return wrong("data.train has no sequences of various lengths");
  if (data.size() > dataset::kMaxBucketed)
    return wrong("data.train has more samples than can be sorted by length, " +
                 std::to_string(dataset::kMaxBucketed));
  auto buckets = std::make_shared<const dataset::LengthBuckets>(data, feed.bucket_boundaries);
  for (const auto& bucket : buckets->buckets())
    if (feed.last_batch == config::LastBatchPolicy::kDrop && bucket.size < batch)
      return wrong("feed.last_batch: drop would never use the " + std::to_string(bucket.size) +
                   " samples of up to " + std::to_string(bucket.length) +
                   " places, fewer than the " + std::to_string(batch) +
                   " of train.micro_batch_size; set it to carry_over or pad, or merge buckets");
  return buckets;
}

}  // namespace

Result<dataset::PlanOptions> make_plan_options(const config::Config& config,
                                               const dataset::Dataset& data,
                                               const SampleWeights& weights,
                                               const PlanStart& start) {
  dataset::PlanOptions options{.size = data.size(),
                               .batch = static_cast<uint64_t>(config.train.micro_batch_size),
                               .seed = config.run.seed,
                               .shuffle = config.feed.shuffle,
                               .window = config.feed.shuffle_block_size,
                               .shards_open = config.feed.shuffle_open_shards,
                               .shard_ends = {},
                               .last_batch = config.feed.last_batch,
                               .first_ticket = start.ticket,
                               .first_epoch = start.epoch,
                               .rank = 0,
                               .world = 1,
                               .datasets = {},
                               .maybe_buckets = nullptr};
  if (!config.feed.bucket_boundaries.empty()) {
    STOKER_ASSIGN_OR_RETURN(options.maybe_buckets,
                            length_buckets(config.feed, data, options.batch * options.world));
    return options;
  }
  if (options.shuffle == config::ShuffleMode::kShards) options.shard_ends = data.shard_ends();
  STOKER_ASSIGN_OR_RETURN(options.datasets, planned_datasets(config, data, weights));
  STOKER_RETURN_IF_ERROR(check_epoch(options));
  return options;
}

Result<dataset::SamplePlan> load_sample_plan(const config::Config& config,
                                             const dataset::Dataset& data,
                                             const std::string& index_dir, uint64_t ticket,
                                             const PlanStart& start) {
  STOKER_ASSIGN_OR_RETURN(const SampleWeights weights,
                          load_sample_weights(config, index_dir, ticket));
  STOKER_ASSIGN_OR_RETURN(const auto options, make_plan_options(config, data, weights, start));
  return dataset::SamplePlan(options);
}

}  // namespace stoker::feed
