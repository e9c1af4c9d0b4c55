// nearest_word: what somebody who mistyped a word most likely meant.
//
// Threads: any; no state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stoker::config {

// Insertions, deletions, replacements and swaps of neighbours that make one word of the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `words` (the first of those equally near), or empty where none is near enough to be
// a slip: within a third of the longer word's length.
std::string nearest_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace stoker::config
