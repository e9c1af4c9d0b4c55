#include "shared/dataset/glob.h"

#include <algorithm>
#include <optional>
#include <span>

#include "shared/dataset/braces.h"

namespace stoker::dataset {
namespace {

constexpr size_t kMaxAlternatives = 256;
constexpr size_t kMaxNames = 1'000'000;  // of ranges

std::vector<std::string> split_names(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (!name.empty() && name != ".") names.emplace_back(name);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return names;
}

// A set "[…]" at the start of `pattern`: whether it holds `c`, and how long it is. Empty where it
// is never closed.
struct SetMatch {
  bool holds = false;
  size_t length = 0;
};
std::optional<SetMatch> match_set(std::string_view pattern, char c) {
  size_t at = 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  bool found = false;
  for (size_t first = at; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at > first) return SetMatch{found != negated, at + 1};
    const auto low = static_cast<unsigned char>(pattern[at]);
    auto high = low;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      high = static_cast<unsigned char>(pattern[at + 2]);
      at += 2;
    }
    const auto value = static_cast<unsigned char>(c);
    if (low <= value && value <= high) found = true;
  }
  return std::nullopt;
}

// How many characters of `pattern` stand for the one character `c`; 0 when they do not.
size_t match_one(std::string_view pattern, char c) {
  if (pattern.empty()) return 0;
  if (pattern[0] == '?') return 1;
  if (pattern[0] == '[') {
    const auto set = match_set(pattern, c);
    if (set) return set->holds ? set->length : 0;
  }
  return pattern[0] == c ? 1 : 0;
}

// One name against one pattern without slashes. Linear memory, and at most pattern * name steps:
// only the last star is ever tried again.
bool match_name(std::string_view pattern, std::string_view name) {
  if (name.starts_with('.') && !pattern.starts_with('.')) return false;
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (const size_t used = match_one(pattern.substr(p), name[n])) {
      p += used;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The names of a path against those of a pattern: a row of "the first j names match the pattern so
// far" for each name of the pattern, so that many "**" cost no more than pattern * path.
bool match_names(std::span<const std::string> pattern, std::span<const std::string> path,
                 bool below) {
  std::vector<char> row(path.size() + 1, 0);
  row[0] = 1;
  // `below`: some part of the pattern is left over once all names are used up.
  if (below && row[path.size()] && !pattern.empty()) return true;
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::vector<char> next(path.size() + 1, 0);
    if (pattern[i] == "**") {
      next[0] = row[0];
      for (size_t j = 1; j <= path.size(); ++j)
        next[j] = row[j] || (next[j - 1] && !path[j - 1].starts_with('.'));
      if (below && next[path.size()]) return true;
    } else {
      for (size_t j = 1; j <= path.size(); ++j)
        next[j] = row[j - 1] && match_name(pattern[i], path[j - 1]);
      if (below && next[path.size()] && i + 1 < pattern.size()) return true;
    }
    row = std::move(next);
  }
  return !below && row[path.size()];
}

}  // namespace

Result<Glob> Glob::parse(std::string_view pattern) {
  const std::string quote_for_message = "'" + std::string(pattern) + "'";
  if (pattern.starts_with('/'))
    return Status(StatusCode::kInvalidArgument,
                  "glob " + quote_for_message + " starts with '/'; it is relative to the path");
  std::vector<std::string> expanded;
  if (!expand_braces(std::string(pattern), Ranges::kAsSets, kMaxAlternatives, expanded)) {
    return Status(StatusCode::kInvalidArgument, "glob " + quote_for_message + " has more than " +
                                                    std::to_string(kMaxAlternatives) +
                                                    " alternatives");
  }
  Glob glob;
  for (const std::string& alternative : expanded) {
    glob.alternatives_.push_back(split_names(alternative));
    if (glob.alternatives_.back().empty())
      return Status(StatusCode::kInvalidArgument,
                    "glob " + quote_for_message + " names nothing; '**/*' names all files");
  }
  return glob;
}

Result<std::vector<std::string>> Glob::names_in_ranges(const std::string& pattern) {
  std::vector<std::string> names;
  if (!has_range(pattern) || pattern.find_first_of("*?[") != std::string::npos) return names;
  if (!expand_braces(pattern, Ranges::kAsNames, kMaxNames, names)) {
    return Status(StatusCode::kInvalidArgument,
                  "glob '" + pattern + "' names more than " + std::to_string(kMaxNames) + " files");
  }
  for (std::string& name : names) {
    std::string joined;
    for (const std::string& part : split_names(name)) joined += (joined.empty() ? "" : "/") + part;
    name = std::move(joined);
  }
  return names;
}

bool Glob::matches(std::string_view path) const {
  const Names names = split_names(path);
  for (const Names& pattern : alternatives_)
    if (match_names(pattern, names, false)) return true;
  return false;
}

bool Glob::may_match_below(std::string_view path) const {
  const Names names = split_names(path);
  for (const Names& pattern : alternatives_)
    if (match_names(pattern, names, true)) return true;
  return false;
}

}  // namespace stoker::dataset
