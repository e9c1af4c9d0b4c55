#include "shared/model/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "shared/base/hash.h"
#include "shared/checkpoint/peft.h"
#include "shared/model/linear.h"
#include "shared/model/torch_dtype.h"

namespace stoker::model {
namespace {

// The modules "lora_A" and "lora_B" of an adapted module.
class LoraA : public torch::nn::Module {
 public:
  LoraA(const config::LoraConfig& config, int64_t inputs)
      : dropout_(config.lora_dropout),
        weight_(register_parameter("weight", at::empty({config.r, inputs}))) {
    torch::nn::init::kaiming_uniform_(weight_, std::sqrt(5.0));
  }
  at::Tensor forward(const at::Tensor& input) const {
    const bool drops = dropout_ > 0 && is_training();
    return linear(drops ? at::dropout(input, dropout_, true) : input, weight_,
                  /*bias=*/at::Tensor());
  }

 private:
  const double dropout_;
  at::Tensor weight_;
};

class LoraB : public torch::nn::Module {
 public:
  LoraB(const config::LoraConfig& config, int64_t outputs)
      : scaling_(config.scaling()),
        weight_(register_parameter("weight", at::zeros({outputs, config.r}))) {}
  at::Tensor forward(const at::Tensor& input) const {
    return linear(input, weight_, /*bias=*/at::Tensor()) * scaling_;
  }

 private:
  const double scaling_;
  at::Tensor weight_;
};

struct NamedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::optional<at::Tensor> weight;  // nullopt: it cannot have an adapter
};

// All modules, of which those that can have an adapter have a weight. Layers in an
// AdaptableProjection are not listed separately.
std::vector<NamedModule> list_modules(const Model& model) {
  std::vector<NamedModule> modules;
  std::string within;  // the name of the projection, with a dot
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    NamedModule& named = modules.emplace_back(NamedModule{item.key(), item.value(), {}});
    const bool is_within = !within.empty() && named.name.starts_with(within);
    if (const auto* const projection =
            dynamic_cast<const AdaptableProjection*>(item.value().get())) {
      named.weight = projection->projection();
      within = named.name + ".";
    } else if (const auto* const layer = item.value()->as<torch::nn::LinearImpl>();
               layer != nullptr && !is_within) {
      named.weight = layer->weight;
    }
  }
  return modules;
}

constexpr const char* kAllLinear = "all-linear";

Status setting_error(const char* key, const std::string& pattern, const std::string& what) {
  return Status(StatusCode::kInvalidArgument,
                std::string("model.lora.") + key + ": '" + pattern + "' " + what);
}

// Why a regular expression is not used, which can be that of a foreign file; empty: it is. Limits the
// depth of the parser, and the time to match, which grows with the power of the repetitions, or
// exponentially if they are nested.
std::string expression_error(const std::string& text) {
  constexpr size_t kMaxBytes = 1024, kMaxDepth = 8, kMaxRepetitions = 6;
  if (text.size() > kMaxBytes) return "is longer than 1024 characters";
  std::vector<bool> repeats{false};  // of each open group: whether it has choices or repetitions
  bool has_repeated = false;         // whether the group that ends before this character has
  size_t repetitions = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool was_repeated = std::exchange(has_repeated, false);
    switch (text[i]) {
      case '\\':
        ++i;
        break;
      case '[':
        for (++i; i < text.size() && text[i] != ']'; ++i)
          if (text[i] == '\\') ++i;
        break;
      case '(':
        repeats.push_back(false);
        if (repeats.size() > kMaxDepth + 1) return "has groups in more than 8 levels";
        if (i + 1 < text.size() && text[i + 1] == '?') ++i;  // "(?:"
        break;
      case ')':
        if (repeats.size() == 1) break;  // is not a regular expression
        has_repeated = repeats.back();
        repeats.pop_back();
        if (has_repeated) repeats.back() = true;
        break;
      case '*':
      case '+':
      case '{':
        if (was_repeated) return "repeats a group that has repetitions or choices";
        if (++repetitions > kMaxRepetitions) return "has more than 6 repetitions";
        repeats.back() = true;
        break;
      case '?':
      case '|':
        repeats.back() = true;
        break;
      default:
        break;
    }
  }
  return {};
}

// An item of target_modules: the end of a name, or a regular expression of a complete one.
class NamePattern {
 public:
  static Result<NamePattern> parse(const std::string& text) {
    NamePattern pattern(text);
    const bool is_plain = text.find_first_of("*+?()[]{}|\\^$") == std::string::npos;
    if (is_plain) return pattern;
    if (const std::string error = expression_error(text); !error.empty())
      return setting_error("target_modules", text.substr(0, 80), error);
    try {
      pattern.expression_.emplace(text, std::regex::ECMAScript);
    } catch (const std::regex_error&) {
      return setting_error("target_modules", text, "is not a regular expression");
    }
    return pattern;
  }
  bool matches(const std::string& name) const {
    return expression_ ? std::regex_match(name, *expression_)
                       : name == text_ || name.ends_with("." + text_);
  }

 private:
  explicit NamePattern(std::string text) : text_(std::move(text)) {}
  std::string text_;
  std::optional<std::regex> expression_;
};

class LoraApplication {
 public:
  LoraApplication(Model& model, const config::ModelConfig& config)
      : model_(model),
        config_(*config.lora),
        names_(config.name()),
        targets_(config_.target_modules.empty() ? default_targets(config) : config_.target_modules),
        modules_(list_modules(model)) {}

  Status run() {
    STOKER_RETURN_IF_ERROR(find_saved());
    STOKER_RETURN_IF_ERROR(find_targets());
    std::set<std::string> base;
    for (auto& parameter : model_.named_parameters()) {
      const bool is_saved = is_in_saved(parameter.key());
      parameter.value().set_requires_grad(is_saved);
      if (!is_saved) base.insert(parameter.key());
    }
    for (const NamedModule* const target : adapted_) add_matrices(*target);
    model_.set_adapter({.base = std::move(base), .dropout = config_.lora_dropout});
    return {};
  }

 private:
  static std::vector<std::string> default_targets(const config::ModelConfig& config) {
    if (std::holds_alternative<config::LlamaConfig>(config.arch) ||
        std::holds_alternative<config::BertConfig>(config.arch))
      return {"q", "v"};
    return {"qkv"};
  }

  // Whether `matches` is true for the module's name here or that in Hugging Face's model.
  bool any_name(const NamedModule& module, const auto& matches) const {
    return matches(module.name) || (names_.has_table() && matches(hf_name(module)));
  }
  std::string hf_name(const NamedModule& module) const {
    return names_.module_from_stoker(module.name);
  }

  Status find_saved() {
    for (const std::string& pattern : config_.modules_to_save) {
      const auto matches = [&](const std::string& name) { return name.ends_with(pattern); };
      bool found = false;
      for (const NamedModule& module : modules_) {
        if (!any_name(module, matches)) continue;
        found = true;
        saved_.push_back(&module);
        if (model_.ties_output() && module.name == "tok")
          return setting_error("modules_to_save", pattern,
                               "is the embedding, which is tied with the output layer: it cannot "
                               "be trained with an adapter; remove it");
      }
      if (!found) return unmatched("modules_to_save", pattern);
    }
    return {};
  }

  Status find_targets() {
    for (const std::string& pattern : targets_) {
      STOKER_ASSIGN_OR_RETURN(const NamePattern parsed, NamePattern::parse(pattern));
      const auto matches = [&](const std::string& name) { return parsed.matches(name); };
      bool found = false;
      for (const NamedModule& module : modules_) {
        const bool is_target = pattern == kAllLinear
                                   ? module.weight && module.name != model_.output_layer()
                                   : any_name(module, matches);
        if (!is_target) continue;
        found = true;
        if (!module.weight) return not_adaptable(pattern, module);
        if (is_in_saved(module.name + ".") || std::ranges::count(adapted_, &module) > 0) continue;
        for (const NamedModule* const saved : saved_)
          if (saved->name.starts_with(module.name + "."))
            return setting_error("modules_to_save", saved->name,
                                 "is adapted with " + module.name +
                                     ", of which it is a part; "
                                     "remove it, or that from target_modules");
        adapted_.push_back(&module);
      }
      if (!found) return unmatched("target_modules", pattern);
    }
    if (!adapted_.empty()) return {};
    return Status(StatusCode::kInvalidArgument,
                  "model.lora.target_modules: all of them are in modules_to_save, so that there is "
                  "no adapter; remove them there");
  }

  bool is_in_saved(const std::string& name) const {
    return std::ranges::any_of(
        saved_, [&](const NamedModule* module) { return name.starts_with(module->name + "."); });
  }

  Status not_adaptable(const std::string& pattern, const NamedModule& module) const {
    if (module.module->as<torch::nn::LinearImpl>() != nullptr)
      return setting_error("target_modules", pattern,
                           "matches " + module.name +
                               ", which is adapted with the attention it is part of; name that");
    return setting_error(
        "target_modules", pattern,
        "matches " + module.name + ", which is not a linear layer; only those can have an adapter");
  }

  Status unmatched(const char* key, const std::string& pattern) const {
    std::vector<std::string> kinds;  // of linear layers, without the number of the block
    for (const NamedModule& module : modules_) {
      if (!module.weight) continue;
      const std::string kind = module.name.substr(module.name.rfind('.') + 1);
      if (std::ranges::count(kinds, kind) == 0) kinds.push_back(kind);
    }
    std::string text;
    for (const std::string& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
    return setting_error(key, pattern, "matches no module; the linear layers are " + text);
  }

  void add_matrices(const NamedModule& target) const {
    const auto add = [&](torch::nn::Module& module, const at::Tensor& weight) {
      module.register_module("lora_A", std::make_shared<LoraA>(config_, weight.size(1)));
      module.register_module("lora_B", std::make_shared<LoraB>(config_, weight.size(0)));
    };
    // PEFT, too, adapts the layer in an attention with it.
    if (dynamic_cast<const AdaptableProjection*>(target.module.get()) != nullptr)
      for (const auto& child : target.module->children())
        if (auto* const layer = child->as<torch::nn::LinearImpl>()) add(*layer, layer->weight);
    add(*target.module, *target.weight);
  }

  Model& model_;
  const config::LoraConfig& config_;
  const checkpoint::PeftNames names_;
  const std::vector<std::string> targets_;
  const std::vector<NamedModule> modules_;
  std::vector<const NamedModule*> saved_, adapted_;
};

NamedTensors all_tensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

}  // namespace

at::Tensor add_adapter(const torch::nn::Module& module, const at::Tensor& input,
                       const at::Tensor& output) {
  const auto children = module.children();  // the matrices are the last ones
  const auto* const b = children.empty() ? nullptr : children.back()->as<LoraB>();
  if (b == nullptr) return output;
  const auto* const a = children[children.size() - 2]->as<LoraA>();
  return output + b->forward(a->forward(input));
}

Status apply_lora(Model& model, const config::ModelConfig& config) {
  return LoraApplication(model, config).run();
}

NamedTensors pretrained_tensors(const Model& model) {
  NamedTensors tensors = all_tensors(model);
  if (model.adapter() != nullptr)
    std::erase_if(tensors, [](const auto& each) { return checkpoint::is_lora_matrix(each.first); });
  return tensors;
}

std::string base_digest(const Model& model) {
  Sha256 sum;
  if (model.adapter() == nullptr) return sum.finish_hex();
  const auto parameters = model.named_parameters();
  for (const std::string& name : model.adapter()->base) {
    const at::Tensor host = parameters[name].detach().cpu().contiguous();
    sum.update(to_string(to_tensor_spec(name, host)) + "\n");
    sum.update(std::span(static_cast<const std::byte*>(host.data_ptr()), host.nbytes()));
  }
  return sum.finish_hex();
}

}  // namespace stoker::model
