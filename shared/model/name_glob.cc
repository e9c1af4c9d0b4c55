#include "shared/model/name_glob.h"

namespace stoker::model {
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

std::optional<std::vector<std::string>> NameGlob::match_parts(std::string_view name) const {
  // fits[i][j]: units i and later match the name from offset j.
  const size_t ends = name.size();
  std::vector<std::vector<char>> fits(units_.size() + 1, std::vector<char>(ends + 1, 0));
  fits[units_.size()][ends] = 1;
  for (size_t i = units_.size(); i-- > 0;) {
    for (size_t j = ends + 1; j-- > 0;) {
      if (units_[i].is_star) {
        fits[i][j] = fits[i + 1][j] || (j < ends && fits[i][j + 1]);
      } else {
        fits[i][j] =
            j < ends && units_[i].bytes[static_cast<unsigned char>(name[j])] && fits[i + 1][j + 1];
      }
    }
  }
  if (!fits[0][0]) return std::nullopt;
  std::vector<std::string> parts;
  size_t j = 0;
  for (size_t i = 0; i < units_.size(); ++i) {
    const size_t from = j;
    if (!units_[i].is_star) {
      ++j;
      continue;
    }
    while (!fits[i + 1][j]) ++j;
    parts.emplace_back(name.substr(from, j - from));
  }
  return parts;
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

}  // namespace stoker::model
