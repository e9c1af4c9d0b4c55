#include "shared/run/setting_changes.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::run {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

std::optional<SettingChange> parse(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, 4);
  const json::object* const fields = error ? nullptr : value.if_object();
  if (fields == nullptr) return std::nullopt;
  SettingChange change;
  for (const auto& [name, target] : {std::pair("time", &change.time),
                                     {"key", &change.key},
                                     {"previous", &change.previous},
                                     {"current", &change.current}}) {
    const json::value* const text = fields->if_contains(name);
    if (text == nullptr || !text->is_string()) return std::nullopt;
    *target = text->get_string();
  }
  const json::value* const step = fields->if_contains("step");
  if (step == nullptr) return std::nullopt;
  change.step = step->to_number<uint64_t>(error);
  return error ? std::nullopt : std::optional(std::move(change));
}

}  // namespace

std::string to_json(const SettingChange& change) {
  return json::serialize(json::object{{"time", change.time},
                                      {"step", change.step},
                                      {"key", change.key},
                                      {"previous", valid_utf8(change.previous)},
                                      {"current", valid_utf8(change.current)}});
}

Result<std::vector<SettingChange>> read_setting_changes(const std::string& path) {
  std::vector<SettingChange> changes;
  const auto text = read_file(path, kMaxFileBytes);
  if (text.status().code() == StatusCode::kNotFound) return changes;
  if (!text.ok()) return text.status();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    if (auto change = parse(line)) changes.push_back(*std::move(change));
  return changes;
}

Status remove_lost_changes(FileSystem& files, const std::string& path, uint64_t step,
                           const std::function<std::string(const std::string& key)>& value_of) {
  STOKER_ASSIGN_OR_RETURN(auto changes, read_setting_changes(path));
  std::set<std::string> known;  // keys whose last change the checkpoint has
  std::vector<SettingChange> kept;
  for (const SettingChange& change : changes | std::views::reverse) {
    const bool is_lost =
        change.step > step || (change.step == step && !known.contains(change.key) &&
                               change.current != value_of(change.key));
    if (is_lost) continue;
    known.insert(change.key);
    kept.push_back(change);
  }
  if (kept.size() == changes.size()) return {};
  std::string text;
  for (const SettingChange& change : kept | std::views::reverse) text += to_json(change) + "\n";
  return write_file_atomically(files, path, text);
}

}  // namespace stoker::run
