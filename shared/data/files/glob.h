// Glob: matches relative paths against a pattern such as "**/*.h".
//
//   *      any characters of one name        ?     one character
//   [a-z]  one character of a set            [!a]  one character that is not in the set
//   **     as a complete name: any number of folders, including none
//   {a,b}  one of the alternatives           {00..31}  each number, with as many digits (below)
//
// As in a shell, a wildcard at the start of a name does not match a leading dot, so hidden files
// and folders must be named explicitly. "*.h" matches files in the top folder only, "**/*.h" in all
// folders.
//
// Threads: immutable after construction.
// Errors:  parse(): kInvalidArgument (empty, absolute, more than 256 alternatives).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::data::files {

class Glob {
 public:
  static Result<Glob> parse(std::string_view pattern);

  // The file names of a pattern that has ranges and no wildcard. As in a shell, a range lists names
  // whether or not the files exist. Empty for other patterns. kInvalidArgument (more than a
  // million).
  static Result<std::vector<std::string>> names_in_ranges(const std::string& pattern);

  bool matches(std::string_view path) const;
  // Whether a file below the folder `path`, at any depth, can match.
  bool may_match_below(std::string_view path) const;

 private:
  using Names = std::vector<std::string>;
  std::vector<Names> alternatives_;  // each is a pattern split at its slashes
};

// expand_braces: expands the braces of a pattern, as in a shell.
//
//   {a,b}       each of the alternatives, which can contain braces
//   {000..146}  each number from 0 to 146 with three digits; {1..12} without leading zeros
//   {a..f}      each letter
//
// An unclosed brace is literal.
//
// Threads: pure functions.
enum class Ranges {
  kAsSets,  // "{00..19}" as "[0-1][0-9]": few patterns even for a long range
  kAsNames  // each number separately
};

// Appends the expansions of `pattern` in order; false if there are more than `max_count`.
bool expand_braces(const std::string& pattern, Ranges ranges, size_t max_count,
                   std::vector<std::string>& out);

bool has_range(const std::string& pattern);

}  // namespace stoker::data::files
