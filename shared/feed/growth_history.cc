#include "shared/feed/growth_history.h"

#include <algorithm>
#include <cassert>

#include <boost/json.hpp>

#include "shared/base/exact_json.h"
#include "shared/base/file.h"

namespace stoker::feed {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

std::string to_line(const DataState& state) {
  return json::serialize(json::object{{"start_ticket", state.began.ticket},
                                      {"epoch", state.began.epoch},
                                      {"samples", state.samples},
                                      {"fingerprint", state.fingerprint}}) +
         "\n";
}

DataState state_of(const json::object& line) {
  return {.began = {.ticket = line.at("start_ticket").to_number<uint64_t>(),
                    .epoch = line.at("epoch").to_number<uint64_t>()},
          .samples = line.at("samples").to_number<uint64_t>(),
          .fingerprint = std::string(line.at("fingerprint").as_string())};
}

template <typename Holds>
bool any_set(const config::Config& config, Holds&& holds) {
  return std::ranges::any_of(config::sampled_datasets(config), [&](const std::string& name) {
    const auto set = config.data.find(name);
    return set != config.data.end() && holds(set->second);
  });
}

}  // namespace

bool grows(const config::Config& config) {
  return any_set(config, [](const config::DatasetConfig& set) { return set.is_refreshable(); });
}

bool grows_at_once(const config::Config& config) {
  return any_set(config, [](const config::DatasetConfig& set) {
    return set.refresh() == config::Refresh::kImmediate;
  });
}

Result<GrowthHistory> parse_growth(std::string_view text, const std::string& path) {
  GrowthHistory history;
  for (size_t from = 0, line = 1; from < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const auto corrupt = [&](const std::string& what) {
      return Status(Code::kCorrupt, path + ":" + std::to_string(line) + ": " + what);
    };
    boost::system::error_code error;
    const json::value value = parse_json(text.substr(from, end - from), error);
    if (error || !value.is_object()) return corrupt("not a JSON object");
    try {
      history.push_back(state_of(value.as_object()));
    } catch (const std::exception& wrong) {
      return corrupt(wrong.what());
    }
    const uint64_t ticket = history.back().began.ticket;
    const bool follows =
        history.size() == 1 ? ticket == 0 : ticket > history[history.size() - 2].began.ticket;
    if (!follows) return corrupt("its ticket does not follow the one before");
    from = end + 1;
  }
  return history;
}

Result<GrowthHistory> read_growth(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return GrowthHistory();
  if (!text.ok()) return text.status();
  return parse_growth(*text, path);
}

Status write_growth(const std::string& path, const GrowthHistory& history) {
  std::string text;
  for (const DataState& state : history) text += to_line(state);
  return write_file_atomically(real_files(), path, text);
}

const DataState& state_at(const GrowthHistory& history, uint64_t ticket) {
  assert(!history.empty());
  const auto after = std::ranges::upper_bound(
      history, ticket, {}, [](const DataState& state) { return state.began.ticket; });
  return after == history.begin() ? history.front() : *std::prev(after);
}

std::string index_dir_of(const std::string& index_dir, const DataState& state) {
  if (state.began.ticket == 0) return index_dir;
  return join_path(index_dir, "version-" + std::to_string(state.began.ticket));
}

}  // namespace stoker::feed
