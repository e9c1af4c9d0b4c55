#include "shared/data/record/class_counts.h"

#include <algorithm>
#include <numeric>

namespace stoker::data::record {
namespace {

constexpr uint64_t kLabelsAtOnce = 1 << 16;  // labels per read

}  // namespace

Result<std::vector<uint64_t>> count_classes(const Dataset& data) {
  STOKER_ASSIGN_OR_RETURN(const auto counts, count_classes(data, 0, data.size(), {}));
  return std::vector<uint64_t>(counts.begin(), counts.end());
}

Result<std::vector<double>> count_classes(const Dataset& data, uint64_t first, uint64_t size,
                                          std::span<const double> maybe_weights) {
  std::vector<double> counts(data.classes());
  std::vector<int64_t> labels(std::min(size, kLabelsAtOnce));
  for (uint64_t done = 0; done < size; done += labels.size()) {
    const auto part = std::span(labels).first(std::min(size - done, labels.size()));
    STOKER_RETURN_IF_ERROR(data.read_labels(first + done, part));
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] >= 0 && static_cast<uint64_t>(part[i]) < counts.size())
        counts[static_cast<size_t>(part[i])] += maybe_weights.empty() ? 1 : maybe_weights[done + i];
  }
  return counts;
}

std::vector<double> balanced_weights(std::span<const double> counts) {
  const double samples = std::reduce(counts.begin(), counts.end());
  const auto classes =
      static_cast<double>(std::ranges::count_if(counts, [](double count) { return count > 0; }));
  std::vector<double> weights;
  weights.reserve(counts.size());
  for (const double count : counts)
    weights.push_back(count > 0 ? samples / (classes * count) : 1.0);
  return weights;
}

}  // namespace stoker::data::record
