#include "shared/feed/dataset_versions.h"

#include <algorithm>
#include <cassert>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/json_parser.h"

namespace stoker::feed {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

std::string to_line(const DatasetVersion& state) {
  return json::serialize(json::object{{"start_ticket", state.start.ticket},
                                      {"epoch", state.start.epoch},
                                      {"samples", state.samples},
                                      {"fingerprint", state.fingerprint}}) +
         "\n";
}

DatasetVersion parse_version(const json::object& line) {
  return {.start = {.ticket = line.at("start_ticket").to_number<uint64_t>(),
                    .epoch = line.at("epoch").to_number<uint64_t>()},
          .samples = line.at("samples").to_number<uint64_t>(),
          .fingerprint = std::string(line.at("fingerprint").as_string())};
}

template <typename Holds>
bool any_dataset(const config::Config& config, Holds&& holds) {
  return std::ranges::any_of(config::sampled_datasets(config), [&](const std::string& name) {
    const auto set = config.data.find(name);
    return set != config.data.end() && holds(set->second);
  });
}

}  // namespace

bool is_refreshable(const config::Config& config) {
  return any_dataset(config, [](const config::DatasetConfig& set) { return set.is_refreshable(); });
}

bool refreshes_immediately(const config::Config& config) {
  return any_dataset(config, [](const config::DatasetConfig& set) {
    return set.refresh() == config::Refresh::kImmediate;
  });
}

Result<DatasetVersions> parse_dataset_versions(std::string_view text, const std::string& path) {
  DatasetVersions history;
  for (size_t from = 0, line = 1; from < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string place = path + ":" + std::to_string(line);
    STOKER_ASSIGN_OR_RETURN(auto version, parse_json_object<DatasetVersion>(
                                              text.substr(from, end - from), place, parse_version));
    history.push_back(std::move(version));
    const uint64_t ticket = history.back().start.ticket;
    const bool follows =
        history.size() == 1 ? ticket == 0 : ticket > history[history.size() - 2].start.ticket;
    if (!follows)
      return Status(StatusCode::kCorrupt,
                    place + ": its start ticket is not above that of the previous version");
    from = end + 1;
  }
  return history;
}

Result<DatasetVersions> read_dataset_versions(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return DatasetVersions();
  if (!text.ok()) return text.status();
  return parse_dataset_versions(*text, path);
}

std::string to_text(const DatasetVersions& history) {
  std::string text;
  for (const DatasetVersion& state : history) text += to_line(state);
  return text;
}

Status write_dataset_versions(const std::string& path, const DatasetVersions& history) {
  return write_file_atomically(default_file_system(), path, to_text(history));
}

const DatasetVersion& version_at(const DatasetVersions& history, uint64_t ticket) {
  assert(!history.empty());
  const auto after = std::ranges::upper_bound(
      history, ticket, {}, [](const DatasetVersion& state) { return state.start.ticket; });
  return after == history.begin() ? history.front() : *std::prev(after);
}

std::string index_dir_for(const std::string& index_dir, const DatasetVersion& state) {
  if (state.start.ticket == 0) return index_dir;
  return join_path(index_dir, "version-" + std::to_string(state.start.ticket));
}

}  // namespace stoker::feed
