#include "shared/config/model_config.h"

namespace stoker::config {
namespace {

std::string name_of(const GptConfig&) { return "gpt"; }
std::string name_of(const Gpt2Config&) { return "gpt2"; }
std::string name_of(const LlamaConfig&) { return "llama"; }
std::string name_of(const LstmLmConfig&) { return "lstm_lm"; }
std::string name_of(const BertConfig&) { return "bert"; }
std::string name_of(const BlstmConfig&) { return "blstm"; }
std::string name_of(const MlpConfig&) { return "mlp"; }
std::string name_of(const Lenet5Config&) { return "lenet5"; }
std::string name_of(const ResnetConfig& resnet) { return "resnet" + std::to_string(resnet.depth); }
std::string name_of(const VggConfig& vgg) {
  return "vgg" + std::to_string(vgg.depth) + (vgg.batch_norm ? "_bn" : "");
}
std::string name_of(const AlexnetConfig&) { return "alexnet"; }
std::string name_of(const InceptionV3Config&) { return "inception_v3"; }
std::string name_of(const VitConfig& vit) {
  return vit.preset.empty() ? "vit" : "vit_" + vit.preset;
}
std::string name_of(const CaptionerConfig&) { return "captioner"; }
std::string name_of(const SequentialConfig&) { return "sequential"; }
std::string name_of(const PluginConfig&) { return "plugin"; }
std::string name_of(const ExportedConfig&) { return "exported"; }

// No template: a new model does not compile without a decision.
ModelSource source_of(const GptConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const Gpt2Config&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const LlamaConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const LstmLmConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const BertConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const BlstmConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const MlpConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const Lenet5Config&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const ResnetConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const VggConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const AlexnetConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const InceptionV3Config&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const VitConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const CaptionerConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const SequentialConfig&) { return ModelSource::kBuiltIn; }
ModelSource source_of(const PluginConfig&) { return ModelSource::kUserCode; }
ModelSource source_of(const ExportedConfig&) { return ModelSource::kUserData; }

}  // namespace

Layer::Layer() = default;
Layer::Layer(const Layer& other) = default;
Layer::Layer(Layer&& other) noexcept = default;
Layer& Layer::operator=(const Layer& other) = default;
Layer& Layer::operator=(Layer&& other) noexcept = default;
Layer::~Layer() = default;
bool Layer::operator==(const Layer& other) const { return variant() == other.variant(); }
bool ResidualLayer::operator==(const ResidualLayer& other) const {
  return body == other.body && shortcut == other.shortcut;
}

ModelVariant::ModelVariant() = default;
ModelVariant::ModelVariant(const ModelVariant& other) = default;
ModelVariant::ModelVariant(ModelVariant&& other) noexcept = default;
ModelVariant& ModelVariant::operator=(const ModelVariant& other) = default;
ModelVariant& ModelVariant::operator=(ModelVariant&& other) noexcept = default;
ModelVariant::~ModelVariant() = default;
bool ModelVariant::operator==(const ModelVariant& other) const {
  return static_cast<const variant&>(*this) == static_cast<const variant&>(other);
}

std::string ModelConfig::name() const {
  return std::visit([](const auto& model) { return name_of(model); }, arch);
}

ModelSource ModelConfig::source() const {
  return std::visit([](const auto& model) { return source_of(model); }, arch);
}

const std::string* ModelConfig::user_file_path() const {
  return std::visit(
      [](const auto& model) -> const std::string* {
        if constexpr (requires { model.path; })
          return &model.path;
        else
          return nullptr;
      },
      arch);
}

const std::optional<int64_t>* ModelConfig::output_vocabulary() const {
  return std::visit(
      [](const auto& model) -> const std::optional<int64_t>* {
        if constexpr (requires { model.vocab_size.has_value(); })
          return &model.vocab_size;
        else
          return nullptr;
      },
      arch);
}

bool ModelConfig::is_language_model() const {
  const auto* const sequential = std::get_if<SequentialConfig>(&arch);
  if (sequential != nullptr)
    return !sequential->layers.empty() &&
           std::holds_alternative<EmbeddingLayer>(sequential->layers.front().variant());
  return !has_num_classes();
}

bool ModelConfig::supports_layer_decay() const {
  return std::holds_alternative<GptConfig>(arch) || std::holds_alternative<Gpt2Config>(arch) ||
         std::holds_alternative<LlamaConfig>(arch) || std::holds_alternative<BertConfig>(arch) ||
         std::holds_alternative<VitConfig>(arch);
}

bool ModelConfig::supports_lora() const {
  return supports_layer_decay() || std::holds_alternative<MlpConfig>(arch);
}

std::optional<int64_t> ModelConfig::context_length() const {
  return std::visit(
      [](const auto& model) -> std::optional<int64_t> {
        if constexpr (requires { model.context_length; })
          return model.context_length;
        else
          return std::nullopt;
      },
      arch);
}

std::optional<int64_t> ModelConfig::vocab_size() const {
  return std::visit(
      [](const auto& model) -> std::optional<int64_t> {
        if constexpr (requires { model.vocab_size; })
          return model.vocab_size;
        else
          return std::nullopt;
      },
      arch);
}

}  // namespace stoker::config
