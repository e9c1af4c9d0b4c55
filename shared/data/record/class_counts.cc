#include "shared/data/record/class_counts.h"

#include <algorithm>
#include <numeric>

namespace stoker::data::record {
namespace {

constexpr uint64_t kLabelsAtOnce = 1 << 16;  // labels per read

}  // namespace

Result<std::vector<uint64_t>> count_classes(const Dataset& data) {
  std::vector<uint64_t> counts(data.classes());
  std::vector<int64_t> labels(std::min(data.size(), kLabelsAtOnce));
  for (uint64_t first = 0; first < data.size(); first += labels.size()) {
    const auto part = std::span(labels).first(std::min(data.size() - first, labels.size()));
    STOKER_RETURN_IF_ERROR(data.read_labels(first, part));
    for (const int64_t label : part)
      if (label >= 0 && static_cast<uint64_t>(label) < counts.size())
        ++counts[static_cast<size_t>(label)];
  }
  return counts;
}

std::vector<double> balanced_weights(std::span<const uint64_t> counts) {
  const auto samples = static_cast<double>(std::reduce(counts.begin(), counts.end()));
  const auto classes =
      static_cast<double>(std::ranges::count_if(counts, [](uint64_t count) { return count > 0; }));
  std::vector<double> weights;
  weights.reserve(counts.size());
  for (const uint64_t count : counts)
    weights.push_back(count == 0 ? 1.0 : samples / (classes * static_cast<double>(count)));
  return weights;
}

}  // namespace stoker::data::record
