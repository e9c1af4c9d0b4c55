// ModelConfig: the model and the weights that it is initialized from, as a variant per model.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shared/config/enum_words.h"

namespace stoker::config {

// ---- layers of a sequential model: modules of torch.nn -------------------------------------------

struct Layer;

struct Conv2dLayer {
  int64_t out_channels = 0;  // required
  int64_t kernel_size = 0;   // required; pixels
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
  bool operator==(const Conv2dLayer&) const = default;
};
struct LinearLayer {
  std::optional<int64_t> out_features;  // null: from the data
  bool bias = true;
  bool operator==(const LinearLayer&) const = default;
};
struct EmbeddingLayer {
  int64_t num_embeddings = 0;  // required
  int64_t embedding_dim = 0;   // required
  bool operator==(const EmbeddingLayer&) const = default;
};
struct LstmLayer {
  int64_t hidden_size = 0;  // required
  bool operator==(const LstmLayer&) const = default;
};
struct BatchNormLayer {
  bool operator==(const BatchNormLayer&) const = default;
};
struct LayerNormLayer {
  bool operator==(const LayerNormLayer&) const = default;
};
struct ReluLayer {
  bool operator==(const ReluLayer&) const = default;
};
struct GeluLayer {
  bool operator==(const GeluLayer&) const = default;
};
struct TanhLayer {
  bool operator==(const TanhLayer&) const = default;
};
struct SigmoidLayer {
  bool operator==(const SigmoidLayer&) const = default;
};
struct MaxPool2dLayer {
  int64_t kernel_size = 0;        // required
  std::optional<int64_t> stride;  // null: kernel_size
  int64_t padding = 0;
  bool operator==(const MaxPool2dLayer&) const = default;
};
struct AvgPool2dLayer {
  int64_t kernel_size = 0;        // required
  std::optional<int64_t> stride;  // null: kernel_size
  int64_t padding = 0;
  bool operator==(const AvgPool2dLayer&) const = default;
};
struct AdaptiveAvgPool2dLayer {
  int64_t output_size = 1;
  bool operator==(const AdaptiveAvgPool2dLayer&) const = default;
};
struct DropoutLayer {
  double p = 0.5;
  bool operator==(const DropoutLayer&) const = default;
};
struct FlattenLayer {
  bool operator==(const FlattenLayer&) const = default;
};
struct ResidualLayer {
  std::vector<Layer> body;      // required; added to the shortcut
  std::vector<Layer> shortcut;  // empty: identity
  bool operator==(const ResidualLayer&) const;
};

using LayerVariant =
    std::variant<Conv2dLayer, LinearLayer, EmbeddingLayer, LstmLayer, BatchNormLayer,
                 LayerNormLayer, ReluLayer, GeluLayer, TanhLayer, SigmoidLayer, MaxPool2dLayer,
                 AvgPool2dLayer, AdaptiveAvgPool2dLayer, DropoutLayer, FlattenLayer, ResidualLayer>;

struct Layer : LayerVariant {
  using LayerVariant::LayerVariant;
  // Defined in model_config.cc, as those of ModelVariant and DatasetSource: in each file that copies a configuration,
  // they would take a tenth of its compile time.
  Layer();
  Layer(const Layer& other);
  Layer(Layer&& other) noexcept;
  Layer& operator=(const Layer& other);
  Layer& operator=(Layer&& other) noexcept;
  ~Layer();
  bool operator==(const Layer& other) const;
  const LayerVariant& variant() const { return *this; }
  LayerVariant& variant() { return *this; }
};

// ---- initial values of parameters: functions of torch.nn.init ------------------------------------

struct ZerosInit {
  bool operator==(const ZerosInit&) const = default;
};
struct OnesInit {
  bool operator==(const OnesInit&) const = default;
};
struct ConstantInit {
  double val = 0;  // required
  bool operator==(const ConstantInit&) const = default;
};
struct NormalInit {
  double mean = 0;
  double std = 1;
  bool operator==(const NormalInit&) const = default;
};
struct UniformInit {
  double a = 0;
  double b = 1;
  bool operator==(const UniformInit&) const = default;
};
struct TruncNormalInit {
  double mean = 0;
  double std = 1;
  double a = -2;
  double b = 2;
  bool operator==(const TruncNormalInit&) const = default;
};
struct XavierUniformInit {
  double gain = 1;
  bool operator==(const XavierUniformInit&) const = default;
};
struct XavierNormalInit {
  double gain = 1;
  bool operator==(const XavierNormalInit&) const = default;
};
enum class FanMode { kFanIn, kFanOut };
template <>
inline constexpr auto kWords<FanMode> = words("fan_in", "fan_out");
enum class Nonlinearity { kLinear, kSigmoid, kTanh, kRelu, kLeakyRelu };
template <>
inline constexpr auto kWords<Nonlinearity> = words("linear", "sigmoid", "tanh", "relu",
                                                   "leaky_relu");
struct KaimingUniformInit {
  double a = 0;  // negative slope of leaky_relu
  FanMode mode = FanMode::kFanIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu;
  bool operator==(const KaimingUniformInit&) const = default;
};
struct KaimingNormalInit {
  double a = 0;  // negative slope of leaky_relu
  FanMode mode = FanMode::kFanIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu;
  bool operator==(const KaimingNormalInit&) const = default;
};
struct OrthogonalInit {
  double gain = 1;
  bool operator==(const OrthogonalInit&) const = default;
};

using InitVariant = std::variant<ZerosInit, OnesInit, ConstantInit, NormalInit, UniformInit,
                                 TruncNormalInit, XavierUniformInit, XavierNormalInit,
                                 KaimingUniformInit, KaimingNormalInit, OrthogonalInit>;

// Initializes the parameters whose name, or last part of the name, matches `pattern`.
struct InitRule {
  std::string pattern;
  InitVariant value;
  bool operator==(const InitRule&) const = default;
};

// ---- models --------------------------------------------------------------------------------------

struct GptConfig {
  int64_t num_layers = 6;
  int64_t num_heads = 6;
  int64_t embed_dim = 192;
  int64_t context_length = 128;
  std::optional<int64_t> vocab_size = 256;  // null: that of the tokenizer
  double dropout = 0.0;
  bool activation_checkpointing = false;  // recompute the blocks in the backward pass
  bool operator==(const GptConfig&) const = default;
};

struct Gpt2Config {  // the defaults are the published model of 124 million parameters
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t embed_dim = 768;
  std::optional<int64_t> mlp_dim;  // null: 4 x embed_dim
  int64_t context_length = 1024;
  std::optional<int64_t> vocab_size = 50257;  // null: that of the tokenizer
  double layer_norm_eps = 1e-5;
  bool tie_weights = true;  // the output layer shares the embedding's weights
  double dropout = 0.1;
  bool activation_checkpointing = false;  // recompute the blocks in the backward pass
  bool operator==(const Gpt2Config&) const = default;

  int64_t effective_mlp_dim() const { return mlp_dim.value_or(4 * embed_dim); }
};

enum class RopeType { kLinear, kLlama3 };
template <>
inline constexpr auto kWords<RopeType> = words("linear", "llama3");

// Scaling of the frequencies of rotary position embeddings, for a longer context than they were
// pretrained with.
struct RopeScaling {
  RopeType rope_type = RopeType::kLinear;           // required
  double factor = 1;                                // required
  double low_freq_factor = 1;                       // llama3
  double high_freq_factor = 4;                      // llama3
  int64_t original_max_position_embeddings = 8192;  // llama3
  bool operator==(const RopeScaling&) const = default;
};

// Llama, Mistral, Qwen2 and Qwen3.
struct LlamaConfig {
  int64_t num_layers = 6;
  int64_t num_heads = 6;
  std::optional<int64_t> num_key_value_heads;  // null: num_heads
  int64_t embed_dim = 192;
  std::optional<int64_t> head_dim;  // null: embed_dim / num_heads
  std::optional<int64_t> mlp_dim;   // null: 8/3 x embed_dim, rounded up to a multiple of 256
  int64_t context_length = 128;
  std::optional<int64_t> vocab_size = 256;  // null: that of the tokenizer
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  double rms_norm_eps = 1e-6;
  bool qkv_bias = false;   // Qwen2
  bool proj_bias = false;  // of the attention's output
  bool mlp_bias = false;
  bool qk_norm = false;              // Qwen3
  bool tie_weights = false;          // the output layer shares the embedding's weights
  std::optional<int64_t> pad_token;  // its embedding is not trained; null: all are
  double attention_dropout = 0.0;
  bool activation_checkpointing = false;  // recompute the blocks in the backward pass
  bool operator==(const LlamaConfig&) const = default;

  int64_t effective_num_key_value_heads() const { return num_key_value_heads.value_or(num_heads); }
  int64_t effective_head_dim() const { return head_dim.value_or(embed_dim / num_heads); }
  int64_t effective_mlp_dim() const {
    return mlp_dim.value_or((8 * embed_dim / 3 + 255) / 256 * 256);
  }
};

struct LstmLmConfig {
  int64_t num_layers = 1;
  int64_t hidden_size = 192;
  int64_t context_length = 128;
  std::optional<int64_t> vocab_size = 256;  // null: that of the tokenizer
  double dropout = 0.0;
  bool tie_weights = false;  // the output layer shares the embedding's weights
  bool operator==(const LstmLmConfig&) const = default;
};

enum class Pooling { kLast, kMean, kNone };
template <>
inline constexpr auto kWords<Pooling> = words("last", "mean", "none");

struct BlstmConfig {
  int64_t num_layers = 1;
  int64_t hidden_size = 192;             // per direction
  int64_t vocab_size = 256;              // for token inputs
  std::optional<int64_t> embedding_dim;  // for token inputs; null: hidden_size
  double dropout = 0.0;
  Pooling pooling = Pooling::kLast;  // kNone by default for sequence_labeling and ctc
  double forget_bias = 0;            // added to the initial bias of the forget gates
  bool operator==(const BlstmConfig&) const = default;
};

enum class BertPooling { kPooler, kMean, kNone };
template <>
inline constexpr auto kWords<BertPooling> = words("pooler", "mean", "none");

struct BertConfig {  // the defaults are the published model of 110 million parameters
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t embed_dim = 768;
  std::optional<int64_t> mlp_dim;  // null: 4 x embed_dim
  int64_t context_length = 512;
  int64_t vocab_size = 30522;
  int64_t num_token_types = 2;
  std::optional<int64_t> sep_token;  // token types count it; null: all tokens have type 0
  std::optional<int64_t> pad_token;  // its embedding is not trained; null: all are
  double layer_norm_eps = 1e-12;
  BertPooling pooling = BertPooling::kPooler;  // kNone by default for sequence_labeling and ctc
  double dropout = 0.1;
  double attention_dropout = 0.1;
  bool activation_checkpointing = false;  // recompute the blocks in the backward pass
  bool operator==(const BertConfig&) const = default;

  int64_t effective_mlp_dim() const { return mlp_dim.value_or(4 * embed_dim); }
};

struct MlpConfig {
  std::vector<int64_t> hidden_sizes = {1024};
  std::optional<int64_t> in_features;  // null: from the data
  double dropout = 0.0;
  bool operator==(const MlpConfig&) const = default;
};

struct Lenet5Config {
  bool operator==(const Lenet5Config&) const = default;
};

struct ResnetConfig {
  int depth = 18;  // determined by the model name
  bool operator==(const ResnetConfig&) const = default;
};

struct VggConfig {
  int depth = 16;           // determined by the model name
  bool batch_norm = false;  // determined by the model name
  int64_t hidden_dim = 4096;
  double dropout = 0.5;
  bool operator==(const VggConfig&) const = default;
};

struct AlexnetConfig {
  int64_t hidden_dim = 4096;
  double dropout = 0.5;
  bool operator==(const AlexnetConfig&) const = default;
};

struct InceptionV3Config {
  bool aux_logits = true;
  double dropout = 0.5;
  bool operator==(const InceptionV3Config&) const = default;
};

struct VitConfig {
  std::string preset;  // "b_16", "b_32", "l_16", "l_32": from the model name; empty: vit
  std::optional<int64_t> image_size;  // null: from the data
  int64_t patch_size = 16;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t hidden_dim = 768;
  std::optional<int64_t> mlp_dim;  // null: 4 x hidden_dim
  double layer_norm_eps = 1e-6;
  double dropout = 0.0;
  bool activation_checkpointing = false;  // recompute the blocks in the backward pass

  int64_t effective_mlp_dim() const { return mlp_dim.value_or(4 * hidden_dim); }
  bool operator==(const VitConfig&) const = default;
};

// Image models without their head, as encoders of a captioner.
enum class ImageEncoder {
  kInceptionV3,
  kResnet18,
  kResnet34,
  kResnet50,
  kResnet101,
  kResnet152,
  kResnet8,
  kResnet14,
  kResnet20,
  kResnet32,
  kResnet44,
  kResnet56,
  kVitB16,
  kVitB32,
  kVitL16,
  kVitL32
};
template <>
inline constexpr auto kWords<ImageEncoder> = words("inception_v3", "resnet18", "resnet34",
                                                   "resnet50", "resnet101", "resnet152", "resnet8",
                                                   "resnet14", "resnet20", "resnet32", "resnet44",
                                                   "resnet56", "vit_b_16", "vit_b_32", "vit_l_16",
                                                   "vit_l_32");
enum class CaptionDecoder { kLstm, kTransformer };
template <>
inline constexpr auto kWords<CaptionDecoder> = words("lstm", "transformer");

struct CaptionEncoderConfig {
  ImageEncoder name = ImageEncoder::kInceptionV3;
  bool operator==(const CaptionEncoderConfig&) const = default;
};

struct CaptionDecoderConfig {
  CaptionDecoder name = CaptionDecoder::kLstm;
  int64_t hidden_size = 512;
  int64_t num_layers = 1;
  int64_t num_heads = 8;  // transformer
  double dropout = 0.3;
  bool operator==(const CaptionDecoderConfig&) const = default;
};

struct CaptionerConfig {
  CaptionEncoderConfig encoder;
  CaptionDecoderConfig decoder;
  int64_t max_length = 20;  // tokens of a caption with its end
  // Recompute the blocks of a vit encoder and of a transformer decoder in the backward pass
  bool activation_checkpointing = false;
  bool operator==(const CaptionerConfig&) const = default;

  bool has_blocks() const {
    return decoder.name == CaptionDecoder::kTransformer ||
           to_string(encoder.name).starts_with("vit");
  }
};

struct SequentialConfig {
  std::vector<Layer> layers;  // required
  bool operator==(const SequentialConfig&) const = default;
};

struct PluginConfig {
  std::string path;         // required; a shared object
  std::string args = "{}";  // arguments of its factory, as the text of a JSON object
  bool operator==(const PluginConfig&) const = default;
};

// For the error of a folder without graph.json.
inline constexpr const char* kExportHint =
    "; write it with stoker-export MODULE:FUNCTION --output FOLDER, or correct model.path";
struct ExportedConfig {
  std::string path;  // required; a folder written by stoker-export, with graph.json
  bool operator==(const ExportedConfig&) const = default;
};
// Each alternative has its own in model_config.cc.
enum class ModelSource {
  kBuiltIn,   // code of stoker
  kUserData,  // a user file that is data, and is read as an untrusted one
  kUserCode,  // a user file whose code is executed
};

struct ModelVariant : std::variant<GptConfig, Gpt2Config, LlamaConfig, LstmLmConfig, BertConfig,
                                   BlstmConfig, MlpConfig, Lenet5Config, ResnetConfig, VggConfig,
                                   AlexnetConfig, InceptionV3Config, VitConfig, CaptionerConfig,
                                   SequentialConfig, PluginConfig, ExportedConfig> {
  using variant::variant;
  ModelVariant();
  ModelVariant(const ModelVariant& other);
  ModelVariant(ModelVariant&& other) noexcept;
  ModelVariant& operator=(const ModelVariant& other);
  ModelVariant& operator=(ModelVariant&& other) noexcept;
  ~ModelVariant();
  bool operator==(const ModelVariant& other) const;
};

// Renames tensors that match `from` to `to`: the text that the first * of `from` matches replaces
// the first * of `to`, and so on.
struct KeyMapping {
  std::string from;
  std::string to;
  bool operator==(const KeyMapping&) const = default;
};

struct PretrainedConfig {
  // Checkpoint directory, .safetensors file, file of torch.save, or Hugging Face folder
  std::string path;
  std::vector<KeyMapping> key_mapping;  // the first match applies
  bool strict = true;                   // missing and unexpected tensors are an error
  std::vector<std::string> exclude;     // globs of tensors that are not loaded
  bool operator==(const PretrainedConfig&) const = default;
};

// LoRA with PEFT's names and defaults: the pretrained weights stay as they are, and matrices of low
// rank in addition to those of linear layers are trained.
struct LoraConfig {
  std::optional<std::string> path;           // PEFT folder that a new run starts from
  int64_t r = 8;                             // rank of the matrices
  double lora_alpha = 8;                     // the adapter's output is multiplied by lora_alpha / r
  double lora_dropout = 0.0;                 // of the adapter's input
  std::vector<std::string> target_modules;   // empty: PEFT's default for the model
  std::vector<std::string> modules_to_save;  // trained completely
  bool operator==(const LoraConfig&) const = default;

  double scaling() const { return lora_alpha / static_cast<double>(r); }
};

struct ModelConfig {
  ModelVariant arch;
  // If has_num_classes(). Null: inferred from the data; for regression the number
  // of targets. 1 for binary_classification.
  std::optional<int64_t> num_classes;
  std::vector<InitRule> init;  // in the order of the file; the first match applies
  std::optional<PretrainedConfig> pretrained;
  std::optional<LoraConfig> lora;   // requires `pretrained`
  std::vector<std::string> freeze;  // globs of parameters that are not trained
  // Steps before the frozen parameters are trained; null: they never are.
  std::optional<uint64_t> unfreeze_at_step;

  // The value of model.name: "gpt", "resnet50", "vit_b_16".
  std::string name() const;
  // model.vocab_size, which can be null, of a model whose outputs are the vocabulary; null pointer for
  // the others.
  const std::optional<int64_t>* output_vocabulary() const;
  std::optional<int64_t>* output_vocabulary() {
    return const_cast<std::optional<int64_t>*>(std::as_const(*this).output_vocabulary());
  }
  bool has_num_classes() const { return output_vocabulary() == nullptr; }
  // True if the model predicts the next token of a sequence.
  bool is_language_model() const;
  // Maximum number of tokens of a sample; null if the model has no limit.
  std::optional<int64_t> context_length() const;
  std::optional<int64_t> vocab_size() const;
  // True for models whose linear layers can have adapters: transformers and mlp.
  bool supports_lora() const;
  // True for models whose layers have an order: optimizer.layer_decay.
  bool supports_layer_decay() const;
  ModelSource source() const;
  // True for models that run code of a user file, with all privileges of the process.
  bool is_user_code() const { return source() == ModelSource::kUserCode; }
  // True for models from user files: which settings they accept is known only after loading.
  bool is_user_file() const { return source() != ModelSource::kBuiltIn; }
  // The path of the user file, or of the folder; null for built-in models.
  const std::string* user_file_path() const;
  // True if the model computes its own loss in training: task.name says only how it is evaluated.
  bool has_loss() const { return std::holds_alternative<ExportedConfig>(arch); }

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace stoker::config
