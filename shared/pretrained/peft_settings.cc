#include "shared/pretrained/peft_settings.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "shared/checkpoint/peft.h"
#include "shared/config/peft_config.h"

namespace stoker::pretrained {
namespace {

// "self_attn.q_proj" for "model.layers.3.self_attn.q_proj"; empty if no part of the name is a number.
std::string kind_in_block(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const bool is_number = std::all_of(name.begin() + static_cast<ptrdiff_t>(begin),
                                       name.begin() + static_cast<ptrdiff_t>(end),
                                       [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_number && end < name.size()) return name.substr(end + 1);
    begin = end + 1;
  }
  return {};
}

size_t num_blocks(const config::ModelVariant& arch) {
  return std::visit(
      [](const auto& model) -> size_t {
        if constexpr (requires { model.num_layers; })
          return static_cast<size_t>(model.num_layers);
        else
          return 0;
      },
      arch);
}

// The shortest names that match exactly these modules: of a kind that every block has, without the
// block, unless it is also the end of another kind, as output.dense of bert is.
std::vector<std::string> shorten(const std::set<std::string>& modules, size_t blocks,
                                 const checkpoint::HuggingFaceNames* maybe_names) {
  std::map<std::string, size_t> counts;
  for (const std::string& module : modules) ++counts[kind_in_block(module)];
  const auto is_in_all_blocks = [&](const std::string& kind) {
    const auto count = counts.find(kind);
    return count != counts.end() && count->second == blocks;
  };
  const auto ends_another = [&](const std::string& kind) {
    if (maybe_names == nullptr) return false;
    return std::ranges::any_of(maybe_names->modules(), [&](const auto& module) {
      const size_t block = module.theirs.find("*.");
      const std::string other(block == std::string_view::npos ? module.theirs
                                                              : module.theirs.substr(block + 2));
      return other.ends_with("." + kind) && !is_in_all_blocks(other);
    });
  };
  std::set<std::string> names;
  for (const std::string& module : modules) {
    const std::string kind = kind_in_block(module);
    names.insert(!kind.empty() && is_in_all_blocks(kind) && !ends_another(kind) ? kind : module);
  }
  return {names.begin(), names.end()};
}

// PEFT expects the weights of the classifier in an adapter for classification.
std::string task_type(const config::ModelVariant& arch, bool has_classifier) {
  if (std::holds_alternative<config::Gpt2Config>(arch) ||
      std::holds_alternative<config::LlamaConfig>(arch))
    return "CAUSAL_LM";
  const auto* const bert = std::get_if<config::BertConfig>(&arch);
  if (bert == nullptr || !has_classifier || bert->pooling == config::BertPooling::kMean) return {};
  return bert->pooling == config::BertPooling::kNone ? "TOKEN_CLS" : "SEQ_CLS";
}

}  // namespace

Result<std::string> peft_settings(const config::ModelConfig& model,
                                  const checkpoint::BaseWeights& base,
                                  const std::vector<TensorSpec>& tensors) {
  const checkpoint::PeftNames names(model.name());
  config::LoraConfig lora = model.lora.value_or(config::LoraConfig());
  lora.r = base.r;
  lora.lora_alpha = base.lora_alpha;
  std::set<std::string> targets, saved;
  for (const TensorSpec& spec : tensors) {
    const std::string module(checkpoint::module_of(spec.name));
    if (spec.name.ends_with(checkpoint::kLoraA) &&
        (spec.shape.empty() || spec.shape.front() != base.r))
      return Status(StatusCode::kMismatch, "the adapter has " + to_string(spec) +
                                               ", but the rank of the checkpoint is " +
                                               std::to_string(base.r));
    if (!checkpoint::is_lora_matrix(spec.name))
      saved.insert(names.module_from_stoker(module));
    else if (!checkpoint::is_output_projection(module))
      targets.insert(names.module_from_stoker(module));
  }
  lora.target_modules =
      shorten(targets, num_blocks(model.arch), checkpoint::HuggingFaceNames::find(model.name()));
  lora.modules_to_save = {saved.begin(), saved.end()};
  const bool is_gpt2 = std::holds_alternative<config::Gpt2Config>(model.arch);
  const std::string type = task_type(model.arch, saved.contains(names.module_from_stoker("fc")));
  return config::format_peft_config(
      lora, {.base = base.path, .task_type = type, .fan_in_fan_out = is_gpt2});
}

}  // namespace stoker::pretrained
