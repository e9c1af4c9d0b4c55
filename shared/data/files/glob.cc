#include "shared/data/files/glob.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stoker::data::files {
namespace {

constexpr size_t kMaxAlternatives = 256;
constexpr size_t kMaxNames = 1'000'000;  // in ranges

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

// Matches a set "[…]" at the start of `pattern` against `c`. `length`: characters of the set in the
// pattern. Empty if the set is not closed.
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

// Number of characters of `pattern` that match the single character `c`; 0 if it does not match.
size_t match_one(std::string_view pattern, char c) {
  if (pattern.empty()) return 0;
  if (pattern[0] == '?') return 1;
  if (pattern[0] == '[') {
    const auto set = match_set(pattern, c);
    if (set) return set->holds ? set->length : 0;
  }
  return pattern[0] == c ? 1 : 0;
}

// Matches one name against one pattern without slashes. Takes linear memory and at most pattern *
// name steps, because only the last star is retried.
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

// Matches the names of a path against those of a pattern. `row[j]`: the first j names match the
// pattern so far. One row per name of the pattern bounds the cost by pattern * path, even with many
// "**".
bool match_names(std::span<const std::string> pattern, std::span<const std::string> path,
                 bool below) {
  std::vector<char> row(path.size() + 1, 0);
  row[0] = 1;
  // `below`: part of the pattern remains after all names are matched.
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
  const std::string quoted = "'" + std::string(pattern) + "'";
  if (pattern.starts_with('/'))
    return Status(StatusCode::kInvalidArgument,
                  "glob " + quoted + " starts with '/'; it is relative to the path");
  std::vector<std::string> expanded;
  if (!expand_braces(std::string(pattern), Ranges::kAsSets, kMaxAlternatives, expanded)) {
    return Status(
        StatusCode::kInvalidArgument,
        "glob " + quoted + " has more than " + std::to_string(kMaxAlternatives) + " alternatives");
  }
  Glob glob;
  for (const std::string& alternative : expanded) {
    glob.alternatives_.push_back(split_names(alternative));
    if (glob.alternatives_.back().empty())
      return Status(StatusCode::kInvalidArgument,
                    "glob " + quoted + " names nothing; '**/*' names all files");
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

namespace {

constexpr size_t kMaxDigits = 18;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits && std::ranges::all_of(text, is_digit);
}

// The two ends of a range "low..high".
struct Range {
  std::string_view low;
  std::string_view high;
  bool is_padded() const { return low.starts_with('0') || high.starts_with('0'); }
};

std::optional<Range> byte_range(std::string_view inner) {
  const size_t dots = inner.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  Range range{.low = inner.substr(0, dots), .high = inner.substr(dots + 2)};
  const auto is_one_letter = [](std::string_view end) {
    return end.size() == 1 && is_letter(end[0]);
  };
  if (is_one_letter(range.low) && is_one_letter(range.high)) {
    if (range.low > range.high) std::swap(range.low, range.high);
    return range;
  }
  if (!is_number(range.low) || !is_number(range.high)) return std::nullopt;
  return range;
}

uint64_t parse_number(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::string padded(uint64_t number, size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

std::string set_of(char low, char high) {
  return low == high ? std::string(1, low) : std::string{'[', low, '-', high, ']'};
}

// Patterns for the numbers from `low` to `high`, which have the same number of digits.
void add_sets(std::string_view low, std::string_view high, const std::string& before,
              std::vector<std::string>& out) {
  const auto all = [](std::string_view text, char c) {
    return text.find_first_not_of(c) == std::string_view::npos;
  };
  if (low.empty() || (all(low, '0') && all(high, '9'))) {
    std::string any = before;
    for (size_t i = 0; i < low.size(); ++i) any += set_of('0', '9');
    out.push_back(any);
    return;
  }
  const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
  if (low[0] == high[0]) {
    add_sets(low_rest, high_rest, before + low[0], out);
    return;
  }
  const std::string zeros(low_rest.size(), '0'), nines(low_rest.size(), '9');
  char first = low[0], last = high[0];
  if (!all(low_rest, '0')) add_sets(low_rest, nines, before + first++, out);
  const bool ends_early = !all(high_rest, '9');
  if (ends_early) --last;
  if (first <= last) add_sets(zeros, nines, before + set_of(first, last), out);
  if (ends_early) add_sets(zeros, high_rest, before + high[0], out);
}

std::vector<std::string> sets_of(const Range& range) {
  if (is_letter(range.low[0])) return {set_of(range.low[0], range.high[0])};
  const auto [low, high] = std::minmax({parse_number(range.low), parse_number(range.high)});
  std::vector<std::string> sets;
  if (range.is_padded()) {
    const size_t digits = std::max(range.low.size(), range.high.size());
    add_sets(padded(low, digits), padded(high, digits), "", sets);
    return sets;
  }
  const size_t max_digits = std::to_string(high).size();
  for (size_t digits = std::to_string(low).size(); digits <= max_digits; ++digits) {
    const std::string least = '1' + std::string(digits - 1, '0');
    const std::string max_count = std::string(digits, '9');
    add_sets(std::max(padded(low, digits), least),
             digits == max_digits ? padded(high, digits) : max_count, "", sets);
  }
  return sets;
}

// False if there are more than `max_count`.
bool names_of(const Range& range, size_t max_count, std::vector<std::string>& names) {
  if (is_letter(range.low[0])) {
    for (char c = range.low[0]; c <= range.high[0]; ++c)
      if (is_letter(c)) names.emplace_back(1, c);
    return names.size() <= max_count;
  }
  const auto [low, high] = std::minmax({parse_number(range.low), parse_number(range.high)});
  if (high - low >= max_count) return false;
  const size_t digits = range.is_padded() ? std::max(range.low.size(), range.high.size()) : 1;
  for (uint64_t number = low; number <= high; ++number) names.push_back(padded(number, digits));
  return true;
}

// The first closed brace of a pattern.
struct Brace {
  size_t open = 0;
  size_t close = 0;
  std::vector<std::string> alternatives;
};
std::optional<Brace> first_brace(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return std::nullopt;
  std::vector<size_t> cuts{open};
  for (size_t at = open, depth = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '{') ++depth;
    if (pattern[at] == ',' && depth == 1) cuts.push_back(at);
    if (pattern[at] != '}' || --depth > 0) continue;
    cuts.push_back(at);
    Brace brace{.open = open, .close = at, .alternatives = {}};
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      brace.alternatives.push_back(pattern.substr(cuts[i] + 1, cuts[i + 1] - cuts[i] - 1));
    return brace;
  }
  return std::nullopt;
}

}  // namespace

bool expand_braces(const std::string& pattern, Ranges ranges, size_t max_count,
                   std::vector<std::string>& out) {
  auto brace = first_brace(pattern);
  if (!brace) {
    if (out.size() == max_count) return false;
    out.push_back(pattern);
    return true;
  }
  if (brace->alternatives.size() == 1) {
    const std::string inner = brace->alternatives[0];
    if (const auto range = byte_range(inner)) {
      brace->alternatives.clear();
      if (ranges == Ranges::kAsSets) brace->alternatives = sets_of(*range);
      if (ranges == Ranges::kAsNames && !names_of(*range, max_count, brace->alternatives))
        return false;
    }
  }
  for (const std::string& inner : brace->alternatives) {
    const std::string one =
        pattern.substr(0, brace->open) + inner + pattern.substr(brace->close + 1);
    if (!expand_braces(one, ranges, max_count, out)) return false;
  }
  return true;
}

bool has_range(const std::string& pattern) {
  for (size_t open = pattern.find('{'); open != std::string::npos;
       open = pattern.find('{', open + 1)) {
    const auto brace = first_brace(pattern.substr(open));
    if (!brace) return false;
    if (brace->alternatives.size() == 1 && byte_range(brace->alternatives[0])) return true;
  }
  return false;
}

}  // namespace stoker::data::files
