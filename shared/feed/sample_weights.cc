#include "shared/feed/sample_weights.h"

#include <charconv>
#include <optional>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/weights_file.h"

namespace stoker::feed {
namespace {

// Kept files of a set by their first ticket.
using KeptFiles = std::map<uint64_t, std::string>;

std::string kept_prefix(const std::string& set) { return set + ".sample_weights."; }

Result<KeptFiles> kept_files(const std::string& index_dir, const std::string& set) {
  const std::string prefix = kept_prefix(set);
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
bool is_newest(const KeptFiles& files, const std::vector<double>& weights) {
  if (files.empty()) return false;
  const auto kept = dataset::load_kept_weights(files.rbegin()->second);
  if (!kept.ok()) log_warn("saved sample weights unreadable", {{"error", kept.status().message()}});
  return kept.ok() && *kept == weights;
}

Status keep(const std::string& set, const std::vector<double>& weights,
            const std::string& index_dir, uint64_t ticket) {
  STOKER_ASSIGN_OR_RETURN(KeptFiles files, kept_files(index_dir, set));
  // The run goes on from an earlier ticket: what was drawn after it never happened.
  while (!files.empty() && files.rbegin()->first >= ticket) {
    STOKER_RETURN_IF_ERROR(real_files().remove_file(files.rbegin()->second));
    files.erase(std::prev(files.end()));
  }
  if (is_newest(files, weights)) return {};
  if (!files.empty())
    log_info("sample weights updated", {{"dataset", set}, {"start_ticket", ticket}});
  return dataset::save_kept_weights(
      weights, join_path(index_dir, kept_prefix(set) + std::to_string(ticket)));
}

}  // namespace

Result<SampleWeights> read_sample_weights(const config::Config& config,
                                          const dataset::Dataset& data) {
  SampleWeights weights;
  const std::vector<uint64_t> sizes = data.set_sizes();
  const std::vector<std::string> names = config::sampled_datasets(config);
  if (names.size() != sizes.size())
    return Status(Code::kMismatch, "data.train: the data is not what the configuration says");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& path = config.data.at(names[i]).sample_weights_path;
    if (path.empty()) continue;
    auto read = dataset::read_weights(path, sizes[i]);
    if (!read.ok()) return read.status().with_context("data." + names[i] + ".sample_weights_path");
    weights.emplace(names[i], *std::move(read));
  }
  return weights;
}

Status keep_sample_weights(const SampleWeights& weights, const std::string& index_dir,
                           uint64_t ticket) {
  for (const auto& [set, numbers] : weights)
    STOKER_RETURN_IF_ERROR(keep(set, numbers, index_dir, ticket));
  return {};
}

Result<SampleWeights> kept_sample_weights(const config::Config& config,
                                          const std::string& index_dir, uint64_t ticket) {
  SampleWeights weights;
  for (const std::string& set : config::sampled_datasets(config)) {
    if (config.data.at(set).sample_weights_path.empty()) continue;
    STOKER_ASSIGN_OR_RETURN(const KeptFiles files, kept_files(index_dir, set));
    const auto after = files.upper_bound(ticket);
    if (after == files.begin())
      return Status(Code::kNotFound, index_dir + ": no weights of data." + set +
                                         " are kept for ticket " + std::to_string(ticket));
    STOKER_ASSIGN_OR_RETURN(auto kept, dataset::load_kept_weights(std::prev(after)->second));
    weights.emplace(set, std::move(kept));
  }
  return weights;
}

}  // namespace stoker::feed
