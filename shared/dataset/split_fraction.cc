#include "shared/dataset/split_fraction.h"

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

std::vector<uint64_t> shard_ends_within(std::span<const uint64_t> ends, const SampleRange& range) {
  std::vector<uint64_t> within;
  uint64_t last = range.begin;
  for (const uint64_t end : ends) {
    if (end <= last || end >= range.end) continue;
    within.push_back(end - range.begin);
    last = end;
  }
  within.push_back(range.size());
  return within;
}

Result<SplitFraction> SplitFraction::of(const DatasetRequest& request) {
  const auto& given = request.config.split;
  if (given.size() != 2 || !(given[0] >= 0.0 && given[0] < given[1] && given[1] <= 1.0)) {
    return request.config_error("split", "must be two numbers [from, to] with 0 <= from < to <= 1");
  }
  return SplitFraction{.from = given[0], .to = given[1]};
}

SampleRange SplitFraction::of_count(uint64_t count) const {
  return {.begin = border(from, count), .end = border(to, count)};
}

std::string SplitFraction::to_text() const {
  return "split=" + format_double_exact(from) + ':' + format_double_exact(to);
}

Result<SampleRange> split_range(const DatasetRequest& request, uint64_t samples) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  const SampleRange range = split.of_count(samples);
  if (range.size() == 0)
    return request.config_error("split",
                                "takes none of the " + std::to_string(samples) + " samples");
  return range;
}

std::string format_double_exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace stoker::dataset
