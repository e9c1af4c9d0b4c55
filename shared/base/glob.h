// glob: patterns of names (tensors, parameters) and of paths (dataset files). One matcher serves
// both; fnmatch(3) has neither "**" nor the text that a wildcard matched.
//
//   *      any characters        ?     one character
//   [a-z]  one character of a set            [!a]  one character outside the set
//
// A '[' that is never closed is an ordinary character. Matching is case-sensitive, by bytes, and
// takes at most pattern * name steps.
//
// Threads: immutable after construction; pure functions.
#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker {

// NameGlob: pattern of a name without folders, in which * matches any text, including dots. Used by
// model.freeze, model.pretrained.key_mapping and optimizer.param_groups.
class NameGlob {
 public:
  explicit NameGlob(std::string_view pattern);

  bool matches(std::string_view name) const { return match(name, nullptr); }
  // Returns the text that each * matches; earlier stars match as little as possible. nullopt: no
  // match.
  std::optional<std::vector<std::string>> match_parts(std::string_view name) const;

 private:
  struct Unit {
    bool is_star = false;
    std::bitset<256> bytes;  // otherwise: one of these
  };

  bool match(std::string_view name, std::vector<std::string_view>* parts) const;

  std::vector<Unit> units_;
};

// Replaces the stars in `text` with `parts`, in order; surplus stars become empty.
std::string expand_wildcards(std::string_view text, const std::vector<std::string>& parts);

// PathGlob: pattern of relative paths, such as "**/*.h".
//
//   * and ?  within one name
//   **       as a complete name: any number of folders, including none
//   {a,b}    one of the alternatives          {00..31}  each number, with as many digits
//
// As in a shell, a wildcard at the start of a name does not match a leading dot: hidden files and
// folders match only if they are named. "*.h" matches files of the top folder only, "**/*.h" those
// of all folders.
//
// Errors:  parse(): kInvalidArgument (empty, absolute, more than 256 alternatives).
class PathGlob {
 public:
  static Result<PathGlob> parse(std::string_view pattern);

  // The files that a pattern with ranges and without wildcards names: as in a shell, a range lists
  // names whether or not the files exist. Empty for other patterns. kInvalidArgument (more than a
  // million).
  static Result<std::vector<std::string>> names_in_ranges(const std::string& pattern);

  bool matches(std::string_view path) const;
  // True if a file below the folder `path` could match.
  bool may_match_below(std::string_view path) const;

 private:
  struct Name {
    explicit Name(std::string_view pattern);
    bool matches(std::string_view name) const;

    bool is_double_star;
    bool matches_hidden;  // starts with a dot
    NameGlob glob;
  };
  using Names = std::vector<Name>;  // a pattern split at its slashes

  static bool match(const Names& pattern, const std::vector<std::string_view>& path, bool below);

  std::vector<Names> alternatives_;
};

// Brace expansion, as in a shell.
//
//   {a,b}       each alternative, which may contain braces
//   {000..146}  each number from 0 to 146 with three digits; {1..12} without leading zeros
//   {a..f}      each letter
//
// An opening brace that is never closed is an ordinary character.
enum class Ranges {
  kAsSets,  // "{00..19}" becomes "[0-1][0-9]": few patterns for ranges of any length
  kAsNames  // each number separately
};

// Appends the expansion of `pattern` in order. Returns false if `out` would have more than
// `max_count` entries.
bool expand_braces(const std::string& pattern, Ranges ranges, size_t max_count,
                   std::vector<std::string>& out);

bool has_range(const std::string& pattern);

}  // namespace stoker
