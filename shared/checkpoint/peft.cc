#include "shared/checkpoint/peft.h"

namespace stoker::checkpoint {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWeight = ".weight";
// PEFT wraps torch.nn.MultiheadAttention, and the layer in it.
constexpr std::string_view kOutProjection = "self_attention.out_proj",
                           kWrapped = "self_attention.base_layer.out_proj";

std::string replace_end(std::string_view name, std::string_view end, std::string_view by) {
  std::string replaced(name);
  if (name.ends_with(end)) replaced.replace(name.size() - end.size(), end.size(), by);
  return replaced;
}

// ".lora_A.weight", or empty.
std::string_view matrix_suffix(std::string_view name) {
  if (name.ends_with(kLoraA)) return kLoraA;
  if (name.ends_with(kLoraB)) return kLoraB;
  return {};
}

}  // namespace

std::string_view module_of(std::string_view tensor) {
  if (const std::string_view suffix = matrix_suffix(tensor); !suffix.empty())
    return tensor.substr(0, tensor.size() - suffix.size());
  const size_t dot = tensor.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : tensor.substr(0, dot);
}

bool is_output_projection(std::string_view module) { return module.ends_with(kOutProjection); }

std::string PeftNames::module_from_stoker(std::string_view name) const {
  const std::string weight = std::string(name) + std::string(kWeight);
  const auto theirs = names_ == nullptr ? std::nullopt : names_->from_stoker(weight);
  return theirs ? std::string(module_of(theirs->name)) : std::string(name);
}

std::optional<PeftNames::Name> PeftNames::from_stoker(std::string_view name) const {
  const std::string prefix(kPrefix);
  const std::string_view suffix = matrix_suffix(name);
  if (suffix.empty()) {
    if (names_ == nullptr) return Name{prefix + std::string(name)};
    auto theirs = names_->from_stoker(name);
    if (theirs) theirs->name.insert(0, prefix);
    return theirs;
  }
  const std::string module = module_from_stoker(module_of(name));
  return Name{prefix + replace_end(module, kOutProjection, kWrapped) + std::string(suffix)};
}

std::optional<PeftNames::Name> PeftNames::to_stoker(std::string_view theirs) const {
  if (!theirs.starts_with(kPrefix)) return std::nullopt;
  theirs.remove_prefix(kPrefix.size());
  const std::string_view suffix = matrix_suffix(theirs);
  if (suffix.empty())
    return names_ == nullptr ? Name{std::string(theirs)} : names_->to_stoker(theirs);
  const std::string module = replace_end(module_of(theirs), kWrapped, kOutProjection);
  if (names_ == nullptr) return Name{module + std::string(suffix)};
  const auto weight = names_->to_stoker(module + std::string(kWeight));
  if (!weight) return std::nullopt;
  return Name{std::string(module_of(weight->name)) + std::string(suffix)};
}

}  // namespace stoker::checkpoint
