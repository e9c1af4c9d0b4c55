#include "shared/dataset/split.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace stoker::dataset {
namespace {

uint64_t border(double fraction, uint64_t count) {
  if (fraction >= 1.0) return count;
  // 0.29 of 100 is 28.999999999999996 in binary: a user means 29.
  const double position = fraction * static_cast<double>(count) * (1.0 + 1e-12);
  return std::min(count, static_cast<uint64_t>(std::floor(position)));
}

std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace

Result<Split> Split::of(const SetRequest& set) {
  const auto& given = set.config.split;
  if (given.size() != 2 || !(given[0] >= 0.0 && given[0] < given[1] && given[1] <= 1.0)) {
    return set.wrong("split", "must be two numbers [from, to] with 0 <= from < to <= 1");
  }
  return Split{.from = given[0], .to = given[1]};
}

Part Split::of_count(uint64_t count) const {
  return {.begin = border(from, count), .end = border(to, count)};
}

std::string Split::to_text() const { return "split=" + exact(from) + ':' + exact(to); }

}  // namespace stoker::dataset
