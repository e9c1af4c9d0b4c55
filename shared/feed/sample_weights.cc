#include "shared/feed/sample_weights.h"

#include <charconv>
#include <optional>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/sample_weights_file.h"

namespace stoker::feed {
namespace {

// Kept files of a set by their first ticket.
using KeptFiles = std::map<uint64_t, std::string>;

std::string snapshot_prefix(const std::string& set) { return set + ".sample_weights."; }

Result<KeptFiles> snapshot_files(const std::string& index_dir, const std::string& set) {
  const std::string prefix = snapshot_prefix(set);
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(index_dir));
  KeptFiles files;
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

// Whether the newest of them says the same.
bool is_latest(const KeptFiles& files, const std::vector<double>& weights) {
  if (files.empty()) return false;
  const auto snapshots = dataset::load_weights_snapshot(files.rbegin()->second);
  if (!snapshots.ok())
    log_warn("saved sample weights unreadable", {{"error", snapshots.status().message()}});
  return snapshots.ok() && *snapshots == weights;
}

Status write_snapshot(const std::string& set, const std::vector<double>& weights,
                      const std::string& index_dir, uint64_t ticket) {
  STOKER_ASSIGN_OR_RETURN(KeptFiles files, snapshot_files(index_dir, set));
  // The run goes on from an earlier ticket: what was drawn after it never happened.
  while (!files.empty() && files.rbegin()->first >= ticket) {
    STOKER_RETURN_IF_ERROR(default_file_system().remove_file(files.rbegin()->second));
    files.erase(std::prev(files.end()));
  }
  if (is_latest(files, weights)) return {};
  if (!files.empty())
    log_info("sample weights updated", {{"dataset", set}, {"start_ticket", ticket}});
  return dataset::save_weights_snapshot(
      weights, join_path(index_dir, snapshot_prefix(set) + std::to_string(ticket)));
}

}  // namespace

Result<SampleWeights> read_sample_weights(const config::Config& config,
                                          const dataset::Dataset& data) {
  SampleWeights weights;
  const std::vector<uint64_t> sizes = data.component_sizes();
  const std::vector<std::string> names = config::sampled_datasets(config);
  if (names.size() != sizes.size())
    return Status(StatusCode::kMismatch, "data.train: the data is not what the configuration says");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& path = config.data.at(names[i]).sample_weights_path;
    if (path.empty()) continue;
    auto read = dataset::read_weights_file(path, sizes[i]);
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
    STOKER_ASSIGN_OR_RETURN(const KeptFiles files, snapshot_files(index_dir, set));
    const auto after = files.upper_bound(ticket);
    if (after == files.begin())
      return Status(StatusCode::kNotFound, index_dir + ": no weights of data." + set +
                                               " are kept for ticket " + std::to_string(ticket));
    STOKER_ASSIGN_OR_RETURN(auto snapshots,
                            dataset::load_weights_snapshot(std::prev(after)->second));
    weights.emplace(set, std::move(snapshots));
  }
  return weights;
}

}  // namespace stoker::feed
