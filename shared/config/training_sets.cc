#include "shared/config/training_sets.h"

namespace stoker::config {
namespace {

const DatasetConfig* maybe_mixture(const Config& config) {
  const auto train = config.data.find("train");
  const bool is_mixture = train != config.data.end() && train->second.kind == DatasetKind::kMixture;
  return is_mixture ? &train->second : nullptr;
}

}  // namespace

std::vector<std::string> training_sets(const Config& config) {
  std::vector<std::string> names{"train"};
  if (const DatasetConfig* const mixture = maybe_mixture(config))
    names.insert(names.end(), mixture->of.begin(), mixture->of.end());
  return names;
}

std::vector<std::string> sample_sets(const Config& config) {
  const DatasetConfig* const mixture = maybe_mixture(config);
  return mixture ? mixture->of : std::vector<std::string>{"train"};
}

}  // namespace stoker::config
