#include "shared/base/glob.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace stoker {
namespace {

// Parses the set that starts at `pattern[at]`, a '[', and advances `at` past it. nullopt: the set
// is not closed, and '[' is an ordinary character.
std::optional<std::bitset<256>> parse_set(std::string_view pattern, size_t& at) {
  size_t from = at + 1;
  const bool negated = from < pattern.size() && (pattern[from] == '!' || pattern[from] == '^');
  if (negated) ++from;
  const size_t end = pattern.find(']', from + 1);  // a leading ']' is a member of the set
  if (end == std::string_view::npos) return std::nullopt;
  std::bitset<256> bytes;
  for (size_t i = from; i < end; ++i) {
    const auto low = static_cast<unsigned char>(pattern[i]);
    auto high = low;
    if (i + 2 < end && pattern[i + 1] == '-') {
      high = static_cast<unsigned char>(pattern[i + 2]);
      i += 2;
    }
    for (unsigned byte = low; byte <= high; ++byte) bytes.set(byte);
  }
  at = end + 1;
  return negated ? ~bytes : bytes;
}

}  // namespace

NameGlob::NameGlob(std::string_view pattern) {
  for (size_t at = 0; at < pattern.size();) {
    Unit unit{.is_star = pattern[at] == '*', .bytes = {}};
    if (pattern[at] == '[') {
      if (const auto set = parse_set(pattern, at)) {
        unit.bytes = *set;
        units_.push_back(unit);
        continue;
      }
    }
    if (pattern[at] == '?') {
      unit.bytes.set();
    } else {
      unit.bytes.set(static_cast<unsigned char>(pattern[at]));
    }
    units_.push_back(unit);
    ++at;
  }
}

// On a mismatch only the last star is extended: if the units before it matched as early as
// possible, no other choice for earlier stars leaves more of the name to match.
bool NameGlob::match(std::string_view name, std::vector<std::string_view>* parts) const {
  constexpr size_t kNone = SIZE_MAX;
  size_t unit = 0, at = 0, star = kNone, star_begin = 0, star_end = 0;
  const auto add_part = [&] {
    if (parts != nullptr && star != kNone)
      parts->push_back(name.substr(star_begin, star_end - star_begin));
  };
  while (at < name.size()) {
    if (unit < units_.size() && units_[unit].is_star) {
      add_part();
      star = unit++;
      star_begin = star_end = at;
    } else if (unit < units_.size() && units_[unit].bytes[static_cast<unsigned char>(name[at])]) {
      ++unit;
      ++at;
    } else if (star != kNone) {
      unit = star + 1;
      at = ++star_end;
    } else {
      return false;
    }
  }
  for (; unit < units_.size() && units_[unit].is_star; ++unit) {
    add_part();
    star = unit;
    star_begin = star_end = name.size();
  }
  add_part();
  return unit == units_.size();
}

std::optional<std::vector<std::string>> NameGlob::match_parts(std::string_view name) const {
  std::vector<std::string_view> parts;
  if (!match(name, &parts)) return std::nullopt;
  return std::vector<std::string>(parts.begin(), parts.end());
}

std::string expand_wildcards(std::string_view text, const std::vector<std::string>& parts) {
  std::string filled;
  size_t next = 0;
  for (const char c : text) {
    if (c != '*') {
      filled += c;
    } else if (next < parts.size()) {
      filled += parts[next++];
    }
  }
  return filled;
}

namespace {

constexpr size_t kMaxAlternatives = 256;
constexpr size_t kMaxNamesInRanges = 1'000'000;

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> names;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (!name.empty() && name != ".") names.push_back(name);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return names;
}

}  // namespace

PathGlob::Name::Name(std::string_view pattern)
    : is_double_star(pattern == "**"), matches_hidden(pattern.starts_with('.')), glob(pattern) {}

bool PathGlob::Name::matches(std::string_view name) const {
  if (name.starts_with('.') && !matches_hidden) return false;
  return glob.matches(name);
}

// For each name of the pattern, row[j] is true if the pattern up to it matches the first j names of
// the path, so that many "**" take no more than pattern * path steps. `below`: true if a part of
// the pattern remains after all names of the path.
bool PathGlob::match(const Names& pattern, const std::vector<std::string_view>& path, bool below) {
  std::vector<char> row(path.size() + 1, 0);
  row[0] = 1;
  if (below && row[path.size()] && !pattern.empty()) return true;
  for (size_t i = 0; i < pattern.size(); ++i) {
    std::vector<char> next(path.size() + 1, 0);
    if (pattern[i].is_double_star) {
      next[0] = row[0];
      for (size_t j = 1; j <= path.size(); ++j)
        next[j] = row[j] || (next[j - 1] && !path[j - 1].starts_with('.'));
      if (below && next[path.size()]) return true;
    } else {
      for (size_t j = 1; j <= path.size(); ++j)
        next[j] = row[j - 1] && pattern[i].matches(path[j - 1]);
      if (below && next[path.size()] && i + 1 < pattern.size()) return true;
    }
    row = std::move(next);
  }
  return !below && row[path.size()];
}

Result<PathGlob> PathGlob::parse(std::string_view pattern) {
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
  PathGlob glob;
  for (const std::string& alternative : expanded) {
    Names& names = glob.alternatives_.emplace_back();
    for (const std::string_view name : split_path(alternative)) names.emplace_back(name);
    if (names.empty())
      return Status(StatusCode::kInvalidArgument,
                    "glob " + quoted + " names nothing; '**/*' names all files");
  }
  return glob;
}

Result<std::vector<std::string>> PathGlob::names_in_ranges(const std::string& pattern) {
  std::vector<std::string> names;
  if (!has_range(pattern) || pattern.find_first_of("*?[") != std::string::npos) return names;
  if (!expand_braces(pattern, Ranges::kAsNames, kMaxNamesInRanges, names)) {
    return Status(StatusCode::kInvalidArgument, "glob '" + pattern + "' names more than " +
                                                    std::to_string(kMaxNamesInRanges) + " files");
  }
  for (std::string& name : names) {
    std::string joined;
    for (const std::string_view part : split_path(name)) {
      if (!joined.empty()) joined += '/';
      joined += part;
    }
    name = std::move(joined);
  }
  return names;
}

bool PathGlob::matches(std::string_view path) const {
  const std::vector<std::string_view> names = split_path(path);
  for (const Names& pattern : alternatives_)
    if (match(pattern, names, false)) return true;
  return false;
}

bool PathGlob::may_match_below(std::string_view path) const {
  const std::vector<std::string_view> names = split_path(path);
  for (const Names& pattern : alternatives_)
    if (match(pattern, names, true)) return true;
  return false;
}

namespace {

constexpr size_t kMaxDigits = 18;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits && std::ranges::all_of(text, is_digit);
}

// The texts before and after "..".
struct Range {
  std::string_view low;
  std::string_view high;
  bool is_padded() const { return low.starts_with('0') || high.starts_with('0'); }
};

std::optional<Range> parse_range(std::string_view inner) {
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

uint64_t to_number(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::string padded(uint64_t number, size_t digits) {
  std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

std::string to_set(char low, char high) {
  return low == high ? std::string(1, low) : std::string{'[', low, '-', high, ']'};
}

// Appends patterns for the numbers from `low` to `high`, which have equally many digits.
void add_sets(std::string_view low, std::string_view high, const std::string& before,
              std::vector<std::string>& out) {
  const auto all = [](std::string_view text, char c) {
    return text.find_first_not_of(c) == std::string_view::npos;
  };
  if (low.empty() || (all(low, '0') && all(high, '9'))) {
    std::string any = before;
    for (size_t i = 0; i < low.size(); ++i) any += to_set('0', '9');
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
  if (first <= last) add_sets(zeros, nines, before + to_set(first, last), out);
  if (ends_early) add_sets(zeros, high_rest, before + high[0], out);
}

std::vector<std::string> to_sets(const Range& range) {
  if (is_letter(range.low[0])) return {to_set(range.low[0], range.high[0])};
  const auto [low, high] = std::minmax({to_number(range.low), to_number(range.high)});
  std::vector<std::string> sets;
  if (range.is_padded()) {
    const size_t digits = std::max(range.low.size(), range.high.size());
    add_sets(padded(low, digits), padded(high, digits), "", sets);
    return sets;
  }
  const size_t max_digits = std::to_string(high).size();
  for (size_t digits = std::to_string(low).size(); digits <= max_digits; ++digits) {
    const std::string min_number = '1' + std::string(digits - 1, '0');
    const std::string max_number = std::string(digits, '9');
    add_sets(std::max(padded(low, digits), min_number),
             digits == max_digits ? padded(high, digits) : max_number, "", sets);
  }
  return sets;
}

// Returns false if there are more than `max_count`.
bool add_names(const Range& range, size_t max_count, std::vector<std::string>& names) {
  if (is_letter(range.low[0])) {
    for (char c = range.low[0]; c <= range.high[0]; ++c)
      if (is_letter(c)) names.emplace_back(1, c);
    return names.size() <= max_count;
  }
  const auto [low, high] = std::minmax({to_number(range.low), to_number(range.high)});
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
    if (const auto range = parse_range(inner)) {
      brace->alternatives.clear();
      if (ranges == Ranges::kAsSets) brace->alternatives = to_sets(*range);
      if (ranges == Ranges::kAsNames && !add_names(*range, max_count, brace->alternatives))
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
    if (brace->alternatives.size() == 1 && parse_range(brace->alternatives[0])) return true;
  }
  return false;
}

}  // namespace stoker
