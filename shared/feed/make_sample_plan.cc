#include "shared/feed/make_sample_plan.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/data/order/bucket_plan.h"
#include "shared/data/order/sample_weights_file.h"

namespace stoker::feed {
namespace {

// The datasets with an index, in the order of `data`.
Result<std::vector<std::string>> indexed_datasets(const config::Config& config,
                                                  const data::Dataset& data) {
  std::vector<std::string> names = config::sampled_datasets(config);
  if (config::streamed_dataset(config) != nullptr) names.pop_back();
  if (names.size() == data.component_sizes().size()) return names;
  return Status(StatusCode::kMismatch, "data.train: the data does not match the configuration");
}

// Snapshot files of a dataset by their first ticket.
using SnapshotFiles = std::map<uint64_t, std::string>;

std::string snapshot_prefix(const std::string& set) { return set + ".sample_weights."; }

Result<SnapshotFiles> snapshot_files(const std::string& index_dir, const std::string& set) {
  const std::string prefix = snapshot_prefix(set);
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(index_dir));
  SnapshotFiles files;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix)) continue;
    uint64_t ticket = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, ticket);
    if (parsed.ec == std::errc() && parsed.ptr == end)
      files.emplace(ticket, join_path(index_dir, name));
  }
  return files;
}

// True if the newest snapshot has the same weights.
bool is_latest(const SnapshotFiles& files, const std::vector<double>& weights) {
  if (files.empty()) return false;
  const auto snapshots = data::order::load_weights_snapshot(files.rbegin()->second);
  if (!snapshots.ok())
    log_warn("saved sample weights unreadable", {{"error", snapshots.status().message()}});
  return snapshots.ok() && *snapshots == weights;
}

Status write_snapshot(const std::string& set, const std::vector<double>& weights,
                      const std::string& index_dir, uint64_t ticket) {
  STOKER_ASSIGN_OR_RETURN(SnapshotFiles files, snapshot_files(index_dir, set));
  // The run resumes from an earlier ticket, so snapshots for this ticket and later ones are void.
  while (!files.empty() && files.rbegin()->first >= ticket) {
    STOKER_RETURN_IF_ERROR(default_file_system().remove_file(files.rbegin()->second));
    files.erase(std::prev(files.end()));
  }
  if (is_latest(files, weights)) return {};
  if (!files.empty())
    log_info("sample weights updated", {{"dataset", set}, {"start_ticket", ticket}});
  return data::order::save_weights_snapshot(
      weights, join_path(index_dir, snapshot_prefix(set) + std::to_string(ticket)));
}

}  // namespace

Result<SampleWeights> read_sample_weights(const config::Config& config, const data::Dataset& data) {
  SampleWeights weights;
  const std::vector<uint64_t> sizes = data.component_sizes();
  STOKER_ASSIGN_OR_RETURN(const std::vector<std::string> names, indexed_datasets(config, data));
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& path = config.data.at(names[i]).sample_weights_path;
    if (path.empty()) continue;
    auto read = data::order::read_weights_file(path, sizes[i]);
    if (!read.ok()) return read.status().with_context("data." + names[i] + ".sample_weights_path");
    weights.emplace(names[i], *std::move(read));
  }
  return weights;
}

Status snapshot_sample_weights(const SampleWeights& weights, const std::string& index_dir,
                               uint64_t ticket) {
  for (const auto& [set, numbers] : weights)
    STOKER_RETURN_IF_ERROR(write_snapshot(set, numbers, index_dir, ticket));
  return {};
}

Result<SampleWeights> load_sample_weights(const config::Config& config,
                                          const std::string& index_dir, uint64_t ticket) {
  SampleWeights weights;
  for (const std::string& set : config::sampled_datasets(config)) {
    if (config.data.at(set).sample_weights_path.empty()) continue;
    STOKER_ASSIGN_OR_RETURN(const SnapshotFiles files, snapshot_files(index_dir, set));
    const auto after = files.upper_bound(ticket);
    if (after == files.begin())
      return Status(StatusCode::kNotFound, index_dir + ": no sample weights of data." + set +
                                               " are stored for ticket " + std::to_string(ticket));
    STOKER_ASSIGN_OR_RETURN(auto snapshots,
                            data::order::load_weights_snapshot(std::prev(after)->second));
    weights.emplace(set, std::move(snapshots));
  }
  return weights;
}

namespace {

Result<data::order::PlannedDataset> planned_dataset(const std::string& name,
                                                    const config::DatasetConfig& set, uint64_t size,
                                                    const SampleWeights& weights) {
  data::order::PlannedDataset planned{
      .size = size, .repeat = set.repeat, .weight = 0, .sample_weights = {}};
  if (set.sample_weights_path.empty()) return planned;
  const auto own = weights.find(name);
  if (own == weights.end() || own->second.size() != size)
    return Status(StatusCode::kMismatch, "data." + name +
                                             ": the number of weights differs from its " +
                                             std::to_string(size) + " samples");
  planned.sample_weights = own->second;
  return planned;
}

double share_of(const config::Mixture& mixture, const std::string& name) {
  const auto share =
      std::ranges::find(mixture.shares, name, &std::pair<std::string, double>::first);
  assert(share != mixture.shares.end() && "a sampled dataset of the mixture");
  return share->second;
}

Result<std::vector<data::order::PlannedDataset>> planned_datasets(const config::Config& config,
                                                                  const data::Dataset& data,
                                                                  const SampleWeights& weights) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<std::string> names, indexed_datasets(config, data));
  const std::vector<uint64_t> sizes = data.component_sizes();
  const auto* const mixture = std::get_if<config::Mixture>(&config.data.at("train").source);
  std::vector<data::order::PlannedDataset> datasets;
  for (size_t i = 0; i < names.size(); ++i) {
    STOKER_ASSIGN_OR_RETURN(auto planned,
                            planned_dataset(names[i], config.data.at(names[i]), sizes[i], weights));
    if (mixture != nullptr) planned.weight = share_of(*mixture, names[i]);
    datasets.push_back(std::move(planned));
  }
  if (const auto* const stream = config::streamed_dataset(config))
    datasets.push_back({.size = data::order::kStreamPositions,
                        .weight = share_of(*mixture, stream->first),
                        .keeps_order = true});
  return datasets;
}

// The dataset bounds its number of samples, but `repeat` can exceed the maximum plan size.
Status check_epoch(const data::order::PlanOptions& options) {
  uint64_t epoch = 0;
  for (const data::order::PlannedDataset& set : options.datasets) {
    if (set.size > (data::order::kMaxPlanSize - epoch) / set.repeat)
      return Status(StatusCode::kInvalidArgument, "data.train: an epoch has too many samples");
    epoch += set.size * set.repeat;
  }
  if (options.last_batch == config::LastBatchPolicy::kDrop && epoch < options.batch * options.world)
    return Status(StatusCode::kInvalidArgument,
                  "feed.last_batch: drop would drop a whole epoch of " + std::to_string(epoch) +
                      " samples, fewer than the " + std::to_string(options.batch) +
                      " of train.micro_batch_size; set it to carry_over or pad");
  return {};
}

Result<std::shared_ptr<const data::order::LengthBuckets>> length_buckets(
    const config::FeedConfig& feed, const data::Dataset& data, uint64_t batch) {
  const auto wrong = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "feed.bucket_boundaries: " + what);
  };
  if (data.max_length() == 0) return wrong("data.train has no variable-length sequences");
  if (data.size() > data::order::kMaxBucketed)
    return wrong("data.train has too many samples for sorting by length, " +
                 std::to_string(data::order::kMaxBucketed));
  auto buckets = std::make_shared<const data::order::LengthBuckets>(data, feed.bucket_boundaries);
  for (const auto& bucket : buckets->buckets())
    if (feed.last_batch == config::LastBatchPolicy::kDrop && bucket.size < batch)
      return wrong("feed.last_batch: drop would never use the " + std::to_string(bucket.size) +
                   " samples of up to " + std::to_string(bucket.length) +
                   " time steps, fewer than the " + std::to_string(batch) +
                   " of train.micro_batch_size; set it to carry_over or pad, or merge buckets");
  return buckets;
}

}  // namespace

Result<data::order::PlanOptions> make_plan_options(const config::Config& config,
                                                   const data::Dataset& data,
                                                   const SampleWeights& weights,
                                                   const PlanStart& start) {
  data::order::PlanOptions options{.size = data.size(),
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
  if (config::streamed_dataset(config) != nullptr) options.size += data::order::kStreamPositions;
  STOKER_RETURN_IF_ERROR(check_epoch(options));
  return options;
}

data::order::PlanOptions make_stream_plan_options(const config::Config& config) {
  return {.size = data::order::kStreamPositions,
          .batch = static_cast<uint64_t>(config.train.micro_batch_size),
          .seed = config.run.seed,
          .shuffle = config::ShuffleMode::kNone,
          .last_batch = config.feed.last_batch};
}

Result<data::order::SamplePlan> load_sample_plan(const config::Config& config,
                                                 const data::Dataset& data,
                                                 const std::string& index_dir, uint64_t ticket,
                                                 const PlanStart& start) {
  STOKER_ASSIGN_OR_RETURN(const SampleWeights weights,
                          load_sample_weights(config, index_dir, ticket));
  STOKER_ASSIGN_OR_RETURN(const auto options, make_plan_options(config, data, weights, start));
  return data::order::SamplePlan(options);
}

namespace {

std::string percent(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * part);
  return text;
}

double padding_ratio(const data::Dataset& data) {
  double places = 0;
  for (uint64_t sample = 0; sample < data.size(); ++sample)
    places += static_cast<double>(data.length(sample));
  return 1 - places / (static_cast<double>(data.max_length()) * static_cast<double>(data.size()));
}

// "32: 120, 64: 41": the number of samples per bucket length.
std::string format_buckets(const data::order::LengthBuckets& buckets) {
  std::string text;
  for (const auto& bucket : buckets.buckets())
    text += (text.empty() ? "" : ", ") + std::to_string(bucket.length) + ": " +
            std::to_string(bucket.size);
  return text;
}

}  // namespace

std::vector<std::string> files_of(const data::Dataset& data, const data::order::SamplePlan& plan,
                                  uint64_t ticket, uint64_t rows) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t sample = plan.at(ticket, row).sample;
    if (sample >= data.size()) continue;  // of a stream
    std::string file = data.source(sample).file;
    if (!file.empty() && seen.insert(file).second) files.push_back(std::move(file));
  }
  return files;
}

void log_padding_ratio(const data::Dataset& data, const data::order::PlanOptions& options) {
  if (data.max_length() == 0) return;
  if (options.maybe_buckets == nullptr) {
    log_info("padding ratio measured",
             {{"dataset", "train"},
              {"padding", percent(padding_ratio(data))},
              {"max_length", data.max_length()},
              {"hint", "feed.bucket_boundaries batches samples of similar length"}});
    return;
  }
  const data::order::LengthBuckets& buckets = *options.maybe_buckets;
  log_info("padding ratio measured",
           {{"dataset", "train"},
            {"padding", percent(buckets.padding())},
            {"padding_without_buckets", percent(buckets.padding_without())},
            {"max_length", data.max_length()},
            {"bucket_sizes", format_buckets(buckets)}});
}

}  // namespace stoker::feed
