#include "shared/config/config.h"

namespace stoker::config {
namespace {

std::vector<std::string> components_of_training(const Config& config) {
  const auto train = config.data.find("train");
  return train == config.data.end() ? std::vector<std::string>{} : train->second.components();
}

}  // namespace

std::vector<std::string> training_datasets(const Config& config) {
  std::vector<std::string> names{"train"};
  for (std::string& name : components_of_training(config)) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> sampled_datasets(const Config& config) {
  const auto train = config.data.find("train");
  const bool is_combined = train != config.data.end() && train->second.combines_datasets();
  return is_combined ? train->second.components() : std::vector<std::string>{"train"};
}

const Normalize* training_normalization(const Config& config) {
  for (const std::string& name : sampled_datasets(config)) {
    const auto found = config.data.find(name);
    if (found == config.data.end()) continue;
    const Transforms* const transforms = found->second.transforms();
    if (transforms == nullptr) continue;
    if (const Normalize* const normalize = find_transform<Normalize>(*transforms)) return normalize;
  }
  return nullptr;
}

}  // namespace stoker::config
