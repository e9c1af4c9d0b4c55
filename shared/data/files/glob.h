// Glob: which relative paths a pattern such as "**/*.h" names.
//
//   *      any characters of one name        ?     one character
//   [a-z]  one character of a set            [!a]  one character that is not in it
//   **     as a whole name: any number of folders, none among them
//   {a,b}  either of the alternatives     {00..31}  each number, with as many digits (below)
//
// As in a shell, a wildcard at the start of a name does not match a leading dot: hidden files and
// folders are named or left out. "*.h" names files of the top folder only; "**/*.h" those of every
// folder.
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

  // The files that a pattern with ranges names, where it has no wildcard: as in a shell, a range
  // says what there is, and does not look. Empty for other patterns. kInvalidArgument (more than a
  // million).
  static Result<std::vector<std::string>> names_in_ranges(const std::string& pattern);

  bool matches(std::string_view path) const;
  // Whether a file somewhere below the folder `path` could match.
  bool may_match_below(std::string_view path) const;

 private:
  using Names = std::vector<std::string>;
  std::vector<Names> alternatives_;  // each a pattern cut at its slashes
};

// braces: what the braces of a pattern stand for, as in a shell.
//
//   {a,b}       either of the alternatives, which may hold braces themselves
//   {000..146}  each number from 0 to 146 in three digits; {1..12} without leading zeros
//   {a..f}      each letter
//
// An open brace that is never closed stands for itself.
//
// Threads: pure functions.
enum class Ranges {
  kAsSets,  // "{00..19}" as "[0-1][0-9]": few patterns, however long the range
  kAsNames  // each number by itself
};

// Appends what `pattern` stands for, in order; false where that would be more than `max_count`.
bool expand_braces(const std::string& pattern, Ranges ranges, size_t max_count,
                   std::vector<std::string>& out);

bool has_range(const std::string& pattern);

}  // namespace stoker::data::files
