// Value: one YAML value with the place where it was written.
//
// parse_yaml() is the only code that knows yaml-cpp, and its exceptions end there.
//
// Threads: values; one parse per thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/config/mistakes.h"

namespace stoker::config {

inline constexpr int kMaxDepth = 32;  // of lists and maps in each other

struct Entry;

struct Value {
  enum class Type { kNothing, kScalar, kList, kMap };

  Type type = Type::kNothing;
  Place place;
  std::string text;            // of a scalar
  bool in_quotes = false;      // a scalar that cannot be a number or a word such as true
  std::vector<Value> items;    // of a list
  std::vector<Entry> entries;  // of a map, each key once, in the order of the text

  Value* find(std::string_view key);
};

struct Entry {
  std::string key;
  Place place;
  Value value;
};

// Parses `text`. `flag` >= 0: the text is the value of that --set flag; all places are then the flag.
// Adds to `mistakes`, under `key`, whatever is wrong: text that is no YAML, a key twice, anchors, aliases,
// tags, keys that are not words, a second document, nesting over kMaxDepth. What is returned then is
// what could be read before.
Value parse_yaml(std::string_view text, int flag, std::string_view key, Mistakes& mistakes);

}  // namespace stoker::config
