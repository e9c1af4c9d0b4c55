#include "shared/config/override.h"

#include <algorithm>
#include <utility>

namespace stoker::config {
namespace {

constexpr size_t kMaxFlagBytes = size_t{64} << 10;

// {"train", "steps"}; empty where a part is: "train..steps".
std::vector<std::string> split_key(std::string_view key) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= key.size();) {
    const size_t dot = std::min(key.find('.', from), key.size());
    if (dot == from) return {};
    parts.emplace_back(key.substr(from, dot - from));
    from = dot + 1;
  }
  return parts;
}

void remove(Value& map, const std::string& key) {
  std::erase_if(map.entries, [&](const Entry& entry) { return entry.key == key; });
}

// The map at `key` in `map`; where there is none, it is made. A key's place is the flag from now on, so
// that a message names what decided.
Value& map_at(Value& map, const std::string& key, const Place& flag) {
  Value* found = map.find(key);
  if (found == nullptr) {
    map.entries.push_back({key, flag, {}});
    found = &map.entries.back().value;
  }
  if (found->type != Value::Type::kMap) *found = {.type = Value::Type::kMap, .place = flag};
  return *found;
}

void put(Value& root, const std::vector<std::string>& parts, Value value, const Place& flag) {
  Value* map = &root;
  if (map->type != Value::Type::kMap) *map = {.type = Value::Type::kMap, .place = flag};
  for (size_t i = 0; i + 1 < parts.size(); ++i) map = &map_at(*map, parts[i], flag);
  remove(*map, parts.back());
  map->entries.push_back({parts.back(), flag, std::move(value)});
}

// Other keys are known or not whatever the file says; which data sets there are, the file decides.
bool is_missing_set(Value& root, const std::vector<std::string>& parts) {
  if (parts.size() != 2 || parts[0] != "data") return false;
  Value* const data = root.find("data");
  return data == nullptr || data->find(parts[1]) == nullptr;
}

}  // namespace

void apply_overrides(const std::vector<std::string>& flags, Value& root, Mistakes& mistakes) {
  for (size_t i = 0; i < flags.size(); ++i) {
    const Place place{.flag = static_cast<int>(i)};
    const std::string_view flag = flags[i];
    const size_t equals = flag.find('=');
    if (equals == std::string_view::npos) {
      mistakes.add(place, "", "has no '='; write KEY=VALUE, such as train.steps=1000");
      continue;
    }
    const std::string_view key = flag.substr(0, equals);
    const auto parts = split_key(key);
    if (parts.empty() || parts.size() > kMaxDepth) {
      mistakes.add(place, key, "is not a key; write KEY=VALUE, such as train.steps=1000");
      continue;
    }
    if (flag.size() > kMaxFlagBytes) {
      mistakes.add(place, key, "is longer than 64 KiB; write it into the file");
      continue;
    }
    const size_t before = mistakes.count();
    Value value = parse_yaml(flag.substr(equals + 1), place.flag, key, mistakes);
    if (mistakes.count() != before) continue;
    if (value.type == Value::Type::kNothing && is_missing_set(root, parts))
      mistakes.add(place, key, "there is no such data set to take out");
    put(root, parts, std::move(value), place);
  }
}

}  // namespace stoker::config
