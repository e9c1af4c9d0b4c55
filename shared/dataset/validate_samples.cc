#include "shared/dataset/validate_samples.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace stoker::dataset {
namespace {

constexpr uint64_t kProbes = 16;

}  // namespace

Status validate_samples(const DatasetRequest& request, const Dataset& dataset) {
  std::vector<std::vector<std::byte>> tensors;
  for (const TensorSpec& spec : dataset.spec()) tensors.emplace_back(spec.bytes());
  const std::vector<std::span<std::byte>> outputs(tensors.begin(), tensors.end());
  const uint64_t probes = std::min(dataset.size(), kProbes);
  if (probes < 2) return {};  // one bad sample says nothing about the settings
  Status first;
  for (uint64_t i = 0; i < probes; ++i) {
    const uint64_t sample = i * dataset.size() / probes;
    const Status status = dataset.read(sample, {.sample = sample}, outputs);
    if (status.ok()) return {};
    if (first.ok()) first = status;
  }
  return Status(first.code(), "data." + request.name + ": none of " + std::to_string(probes) +
                                  " samples looked at fits input, shape, label and target; the "
                                  "first: " +
                                  first.message());
}

}  // namespace stoker::dataset
