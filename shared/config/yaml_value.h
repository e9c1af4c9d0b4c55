// Value: one YAML value with its location.
//
// parse_yaml() is the only user of yaml-cpp and catches its exceptions.
//
// Threads: values; one parse per thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/config/config_errors.h"

namespace stoker::config {

inline constexpr int kMaxDepth = 32;  // nesting of lists and mappings

struct Entry;

struct Value {
  // kRemoved: --set KEY= removes the key, so that its default applies.
  enum class Type { kNull, kScalar, kList, kMap, kRemoved };

  Type type = Type::kNull;
  SourceLocation location;
  std::string text;            // of a scalar
  bool in_quotes = false;      // a scalar that cannot be a number or a word such as true
  std::vector<Value> items;    // of a list
  std::vector<Entry> entries;  // of a mapping, each key once, in the order of the text

  Value* find(std::string_view key);
};

struct Entry {
  std::string key;
  SourceLocation location;
  Value value;
};

// Parses `text`. If `flag` >= 0, the text is the value of that --set option, and all locations
// refer to the option. Adds errors under `key`: invalid YAML, duplicate keys, anchors, aliases,
// tags, keys that are not words, a second document, nesting over kMaxDepth. Returns what was read
// before the error.
Value parse_yaml(std::string_view text, int flag, std::string_view key, ConfigErrors& errors);

}  // namespace stoker::config
