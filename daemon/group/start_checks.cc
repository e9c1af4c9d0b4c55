#include "daemon/group/start_checks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::group {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kFailureCheckInterval{200};  // longer with more ranks, which load the store
constexpr const char* kUnset = "(unset)";

std::string settings_key(const std::string& topic, int rank) {
  return "settings/" + topic + "/" + std::to_string(rank);
}
std::string rank_text_key(const std::string& topic, int rank) {
  return "text/" + topic + "/" + std::to_string(rank);
}
std::string text_key(const std::string& topic) { return "text/" + topic; }

// The value of a key that `rank` sets.
Result<std::string> wait_for_value(Store& keys, const LaunchEnvironment& environment,
                                   const std::string& key, int rank, const StartWait& wait,
                                   const std::stop_token& stop) {
  const milliseconds interval = kFailureCheckInterval + milliseconds(environment.world_size);
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    // Before the key is read, which the rank sets before it leaves.
    const auto closed = wait.find_closed ? wait.find_closed(rank) : std::nullopt;
    const Status set = keys.wait(key, std::min<Deadline>(wait.deadline, now + interval), stop);
    if (set.ok()) break;
    if (set.code() != StatusCode::kTimedOut) return set;
    STOKER_RETURN_IF_ERROR(check_failed(keys, environment));
    STOKER_RETURN_IF_ERROR(check_killed(keys, environment, wait.has_exited));
    if (closed) return wait.lose(rank, *closed);
    if (now >= wait.deadline)
      return Status(StatusCode::kPeerLost, describe_rank(keys, environment, rank) +
                                               " did not start in time; see its log, or raise "
                                               "distributed.start_timeout_seconds");
  }
  STOKER_ASSIGN_OR_RETURN(const auto value, keys.get(key));
  return value.value_or("");
}

std::optional<std::string> find(const SharedSettings& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &SharedSettings::value_type::first);
  return found == settings.end() ? std::nullopt : std::optional(found->second);
}

// The difference of the first rank that has one; empty: none.
Result<std::string> compare_all(Store& keys, const LaunchEnvironment& environment,
                                const std::string& topic, const SharedSettings& own,
                                const StartWait& wait, const std::stop_token& stop) {
  for (int rank = 1; rank < environment.world_size; ++rank) {
    const std::string key = settings_key(topic, rank);
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            wait_for_value(keys, environment, key, rank, wait, stop));
    STOKER_ASSIGN_OR_RETURN(const SharedSettings settings, parse_settings(text, key));
    if (const auto difference = find_difference(settings, own))
      return describe_rank(keys, environment, rank) + ": " + difference->name + " is " +
             difference->other + ", but " + difference->own +
             " on rank 0; start all ranks with the same command line, programs and data";
  }
  return std::string();
}

}  // namespace

std::string to_json(const SharedSettings& settings) {
  json::object fields;
  for (const auto& [name, value] : settings) fields[name] = value;
  return json::serialize(fields);
}

Result<SharedSettings> parse_settings(const std::string& text, const std::string& key) {
  return parse_json_object<SharedSettings>(
      text, "store key " + key, [](const json::object& fields) {
        SharedSettings settings;
        for (const auto& field : fields)
          settings.emplace_back(field.key(), std::string(field.value().as_string()));
        return settings;
      });
}

std::optional<SettingDifference> find_difference(const SharedSettings& others,
                                                 const SharedSettings& own) {
  for (const auto& [name, value] : own)
    if (const auto other = find(others, name); other != value)
      return SettingDifference{name, other.value_or(kUnset), value};
  for (const auto& [name, value] : others)
    if (!find(own, name)) return SettingDifference{name, value, kUnset};
  return std::nullopt;
}

Status check_same_settings(Store& keys, const LaunchEnvironment& environment,
                           const std::string& topic, const SharedSettings& settings,
                           const StartWait& wait, const std::stop_token& stop) {
  std::string difference;
  if (environment.is_chief()) {
    STOKER_ASSIGN_OR_RETURN(difference,
                            compare_all(keys, environment, topic, settings, wait, stop));
  } else {
    STOKER_RETURN_IF_ERROR(keys.set(settings_key(topic, environment.rank), to_json(settings)));
  }
  STOKER_ASSIGN_OR_RETURN(difference,
                          receive_from_chief(keys, environment, topic, difference, wait, stop));
  return difference.empty() ? Status() : Status(StatusCode::kMismatch, difference);
}

Result<std::string> receive_from_chief(Store& keys, const LaunchEnvironment& environment,
                                       const std::string& topic, const std::string& text,
                                       const StartWait& wait, const std::stop_token& stop) {
  const std::string key = text_key(topic);
  if (!environment.is_chief()) return wait_for_value(keys, environment, key, 0, wait, stop);
  STOKER_RETURN_IF_ERROR(keys.set(key, text));
  return text;
}

Result<std::vector<std::string>> gather_at_chief(Store& keys, const LaunchEnvironment& environment,
                                                 const std::string& topic, const std::string& text,
                                                 const StartWait& wait,
                                                 const std::stop_token& stop) {
  std::vector<std::string> texts;
  if (!environment.is_chief()) {
    STOKER_RETURN_IF_ERROR(keys.set(rank_text_key(topic, environment.rank), text));
    return texts;
  }
  texts.push_back(text);
  for (int rank = 1; rank < environment.world_size; ++rank) {
    STOKER_ASSIGN_OR_RETURN(
        std::string other,
        wait_for_value(keys, environment, rank_text_key(topic, rank), rank, wait, stop));
    texts.push_back(std::move(other));
  }
  return texts;
}

}  // namespace stoker::group
