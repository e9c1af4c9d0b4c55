// braces: what the braces of a pattern stand for, as in a shell.
//
//   {a,b}       either of the alternatives, which may hold braces themselves
//   {000..146}  each number from 0 to 146 in three digits; {1..12} without leading zeros
//   {a..f}      each letter
//
// An open brace that is never closed stands for itself.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stoker::dataset {

enum class Ranges {
  kAsSets,  // "{00..19}" as "[0-1][0-9]": few patterns, however long the range
  kAsNames  // each number by itself
};

// Appends what `pattern` stands for, in order; false where that would be more than `max_count`.
bool expand_braces(const std::string& pattern, Ranges ranges, size_t max_count,
                   std::vector<std::string>& out);

bool has_range(const std::string& pattern);

}  // namespace stoker::dataset
