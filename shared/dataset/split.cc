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

}  // namespace

std::vector<uint64_t> shard_ends_within(std::span<const uint64_t> ends, const Part& part) {
  std::vector<uint64_t> within;
  uint64_t last = part.begin;
  for (const uint64_t end : ends) {
    if (end <= last || end >= part.end) continue;
    within.push_back(end - part.begin);
    last = end;
  }
  within.push_back(part.size());
  return within;
}

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

std::string Split::to_text() const { return "split=" + exact_text(from) + ':' + exact_text(to); }

Result<Part> part_of_samples(const SetRequest& set, uint64_t samples) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  const Part part = split.of_count(samples);
  if (part.size() == 0)
    return set.wrong("split", "takes none of the " + std::to_string(samples) + " samples");
  return part;
}

std::string exact_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace stoker::dataset
