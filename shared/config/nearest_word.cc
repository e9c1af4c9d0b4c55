#include "shared/config/nearest_word.h"

#include <algorithm>
#include <utility>

namespace stoker::config {
namespace {
constexpr size_t kLongestWord = 64;  // no key is longer; the cost is the product of two lengths
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

std::string nearest_word(std::string_view typed, const std::vector<std::string>& words) {
  if (typed.size() > kLongestWord) return {};
  std::string best;
  size_t best_distance = kLongestWord;
  for (const std::string& word : words) {
    const size_t distance = edit_distance(typed, word);
    const size_t limit = std::max<size_t>(1, std::max(typed.size(), word.size()) / 3);
    if (distance > limit || distance >= best_distance) continue;
    best = word;
    best_distance = distance;
  }
  return best;
}

}  // namespace stoker::config
