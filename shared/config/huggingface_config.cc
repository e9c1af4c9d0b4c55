#include "shared/config/huggingface_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <map>
#include <span>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "shared/base/file.h"
#include "shared/config/foreign_json.h"
#include "shared/config/image_model_config.h"

namespace stoker::config {
namespace {

namespace json = boost::json;

constexpr double kMaxSize = 1e6, kMaxVocabulary = 1e7, kMaxContext = 1e7, kMaxBlocks = 1000,
                 kMaxImageSide = 1e5,
                 kMaxPatchSide = 1e4;  // as in settings_model.cc

// ---- Settings and the fields that hold them

template <typename C>
struct MappedSetting {
  using Member = std::variant<int64_t C::*, std::optional<int64_t> C::*, double C::*, bool C::*,
                              std::optional<RopeScaling> C::*>;
  std::string_view key;    // below model
  std::string_view field;  // of config.json
  Member member;
  double max = kMaxSize;
  bool is_required = false;
  bool has_own_field = true;  // false: read and written separately
  bool is_compared = true;    // false: does not change what the weights compute
  bool is_bound = false;      // of the model; the configuration can have less
};

using Gpt2Setting = MappedSetting<Gpt2Config>;
using LlamaSetting = MappedSetting<LlamaConfig>;
using BertSetting = MappedSetting<BertConfig>;

std::span<const Gpt2Setting> settings_of(const Gpt2Config&) {
  static const std::array kSettings{
      Gpt2Setting{"num_layers", "n_layer", &Gpt2Config::num_layers, kMaxBlocks, true},
      Gpt2Setting{"num_heads", "n_head", &Gpt2Config::num_heads, kMaxSize, true},
      Gpt2Setting{"embed_dim", "n_embd", &Gpt2Config::embed_dim, kMaxSize, true},
      Gpt2Setting{"mlp_dim", "n_inner", &Gpt2Config::mlp_dim},
      Gpt2Setting{"context_length", "n_positions", &Gpt2Config::context_length, kMaxContext, true},
      Gpt2Setting{"vocab_size", "vocab_size", &Gpt2Config::vocab_size, kMaxVocabulary, true},
      Gpt2Setting{"layer_norm_eps", "layer_norm_epsilon", &Gpt2Config::layer_norm_eps, 1},
      Gpt2Setting{"tie_weights", "tie_word_embeddings", &Gpt2Config::tie_weights},
      Gpt2Setting{.key = "dropout",
                  .field = "resid_pdrop",
                  .member = &Gpt2Config::dropout,
                  .has_own_field = false,
                  .is_compared = false}};
  return kSettings;
}

// What the weights compute does not depend on it, but how they are trained.
template <typename C>
MappedSetting<C> pad_token_setting(std::optional<int64_t> C::*member) {
  return {.key = "pad_token",
          .field = "pad_token_id",
          .member = member,
          .has_own_field = false,
          .is_compared = false};
}

LlamaSetting own_setting(std::string_view key, std::string_view field,
                         LlamaSetting::Member member) {
  return {.key = key, .field = field, .member = member, .has_own_field = false};
}

std::span<const LlamaSetting> settings_of(const LlamaConfig&) {
  static const std::array kSettings{
      LlamaSetting{"num_layers", "num_hidden_layers", &LlamaConfig::num_layers, kMaxBlocks, true},
      LlamaSetting{"num_heads", "num_attention_heads", &LlamaConfig::num_heads, kMaxSize, true},
      LlamaSetting{"num_key_value_heads", "num_key_value_heads", &LlamaConfig::num_key_value_heads},
      LlamaSetting{"embed_dim", "hidden_size", &LlamaConfig::embed_dim, kMaxSize, true},
      LlamaSetting{"head_dim", "head_dim", &LlamaConfig::head_dim},
      LlamaSetting{"mlp_dim", "intermediate_size", &LlamaConfig::mlp_dim, kMaxSize, true},
      LlamaSetting{.key = "context_length",
                   .field = "max_position_embeddings",
                   .member = &LlamaConfig::context_length,
                   .max = kMaxContext,
                   .is_required = true,
                   .is_bound = true},
      LlamaSetting{"vocab_size", "vocab_size", &LlamaConfig::vocab_size, kMaxVocabulary, true},
      own_setting("rope_theta", "rope_theta", &LlamaConfig::rope_theta),
      own_setting("rope_scaling", "rope_scaling", &LlamaConfig::rope_scaling),
      LlamaSetting{"rms_norm_eps", "rms_norm_eps", &LlamaConfig::rms_norm_eps, 1},
      own_setting("qkv_bias", "attention_bias", &LlamaConfig::qkv_bias),
      own_setting("proj_bias", "attention_bias", &LlamaConfig::proj_bias),
      own_setting("mlp_bias", "mlp_bias", &LlamaConfig::mlp_bias),
      own_setting("qk_norm", "model_type", &LlamaConfig::qk_norm),
      LlamaSetting{"tie_weights", "tie_word_embeddings", &LlamaConfig::tie_weights},
      pad_token_setting(&LlamaConfig::pad_token),
      LlamaSetting{.key = "attention_dropout",
                   .field = "attention_dropout",
                   .member = &LlamaConfig::attention_dropout,
                   .max = 0.99,
                   .is_compared = false}};
  return kSettings;
}

BertSetting bert_dropout(std::string_view key, std::string_view field, double BertConfig::*member) {
  return {.key = key, .field = field, .member = member, .max = 0.99, .is_compared = false};
}

std::span<const BertSetting> settings_of(const BertConfig&) {
  static const std::array kSettings{
      BertSetting{"num_layers", "num_hidden_layers", &BertConfig::num_layers, kMaxBlocks, true},
      BertSetting{"num_heads", "num_attention_heads", &BertConfig::num_heads, kMaxSize, true},
      BertSetting{"embed_dim", "hidden_size", &BertConfig::embed_dim, kMaxSize, true},
      BertSetting{"mlp_dim", "intermediate_size", &BertConfig::mlp_dim, kMaxSize, true},
      BertSetting{"context_length", "max_position_embeddings", &BertConfig::context_length,
                  kMaxContext, true},
      BertSetting{"vocab_size", "vocab_size", &BertConfig::vocab_size, kMaxVocabulary, true},
      BertSetting{"num_token_types", "type_vocab_size", &BertConfig::num_token_types},
      BertSetting{"layer_norm_eps", "layer_norm_eps", &BertConfig::layer_norm_eps, 1},
      pad_token_setting(&BertConfig::pad_token),
      bert_dropout("dropout", "hidden_dropout_prob", &BertConfig::dropout),
      bert_dropout("attention_dropout", "attention_probs_dropout_prob",
                   &BertConfig::attention_dropout)};
  return kSettings;
}

using VitSetting = MappedSetting<VitConfig>;

std::span<const VitSetting> settings_of(const VitConfig&) {
  static const std::array kSettings{
      VitSetting{"num_layers", "num_hidden_layers", &VitConfig::num_layers, kMaxBlocks, true},
      VitSetting{"num_heads", "num_attention_heads", &VitConfig::num_heads, kMaxSize, true},
      VitSetting{"hidden_dim", "hidden_size", &VitConfig::hidden_dim, kMaxSize, true},
      VitSetting{"mlp_dim", "intermediate_size", &VitConfig::mlp_dim, kMaxSize, true},
      VitSetting{"image_size", "image_size", &VitConfig::image_size, kMaxImageSide, true},
      VitSetting{"patch_size", "patch_size", &VitConfig::patch_size, kMaxPatchSide, true},
      VitSetting{"layer_norm_eps", "layer_norm_eps", &VitConfig::layer_norm_eps, 1},
      VitSetting{.key = "dropout",
                 .field = "hidden_dropout_prob",
                 .member = &VitConfig::dropout,
                 .max = 0.99,
                 .is_compared = false}};
  return kSettings;
}

// Whether the model has the key: vit_b_16 has its sizes from its name.
template <typename C>
bool has_key(const C&, std::string_view) {
  return true;
}
bool has_key(const VitConfig& vit, std::string_view key) {
  return vit.preset.empty() || key == "layer_norm_eps" || key == "dropout";
}

// With the values that null stands for.
VitConfig with_sizes(VitConfig vit) {
  vit.mlp_dim = vit.effective_mlp_dim();
  return vit;
}
Gpt2Config with_sizes(Gpt2Config gpt2) {
  gpt2.mlp_dim = gpt2.effective_mlp_dim();
  return gpt2;
}
BertConfig with_sizes(BertConfig bert) {
  bert.mlp_dim = bert.effective_mlp_dim();
  return bert;
}
LlamaConfig with_sizes(LlamaConfig llama) {
  llama.num_key_value_heads = llama.effective_num_key_value_heads();
  llama.head_dim = llama.effective_head_dim();
  llama.mlp_dim = llama.effective_mlp_dim();
  return llama;
}

// ---- Reading

using Undecided = std::map<std::string, std::string>;

// 10000 is 10000.0.
bool is_same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

template <typename C>
void read_setting(const MappedSetting<C>& setting, const json::value& value, C& config) {
  std::visit(
      [&](auto member) {
        using T = std::decay_t<decltype(config.*member)>;
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>)
          config.*member = read_count(setting.field, value, setting.max);
        else if constexpr (std::is_same_v<T, double>)
          config.*member = read_real(setting.field, value,
                                     {0, setting.max, /*includes_min=*/!setting.is_compared});
        else if constexpr (std::is_same_v<T, bool>)
          config.*member = read_bool(setting.field, value);
      },
      setting.member);
}

// The fields of the table; the others keep their defaults.
template <typename C>
void read_settings_of(const json::object& object, C& config) {
  for (const MappedSetting<C>& setting : settings_of(config)) {
    if (!setting.has_own_field) continue;
    const json::value value = json_field(object, setting.field);
    if (!value.is_null())
      read_setting(setting, value, config);
    else if (setting.is_required)
      reject_field(setting.field, "is missing");
  }
}

void require_activation(const json::object& object, std::string_view field,
                        std::initializer_list<std::string_view> supported) {
  const json::value value = json_field(object, field);
  if (value.is_null() ||
      (value.is_string() && std::ranges::count(supported, value.as_string()) > 0))
    return;
  std::string words;
  for (const std::string_view word : supported)
    words += (words.empty() ? "" : ", ") + std::string(word);
  reject_field(field, json_text(value) + " is not supported (only " + words + ")");
}

// transformers ends with an error if it is not a row of the embedding. A negative one counts from the
// end.
template <typename C>
void read_pad_token(const json::object& object, std::optional<int64_t> if_absent,
                    int64_t vocab_size, HuggingFaceConfig& config) {
  constexpr std::string_view kField = "pad_token_id";
  const json::value* const found = object.if_contains(kField);
  std::optional<int64_t> token = if_absent;
  if (found != nullptr) {
    if (!found->is_null() && !found->is_int64()) reject_value(kField, *found, "an integer or null");
    token = found->is_null() ? std::nullopt : std::optional(found->as_int64());
  }
  if (token && *token < 0) *token += vocab_size;
  if (token && (*token < 0 || *token >= vocab_size)) {
    config.undecided["model.pad_token"] =
        "'pad_token_id' " + (found == nullptr ? std::to_string(*token) : json_text(*found)) +
        " is not below vocab_size (" + std::to_string(vocab_size) + ")";
    token.reset();
  }
  std::get<C>(config.arch).pad_token = token;
}

Gpt2Config read_gpt2(const json::object& object, Undecided& undecided) {
  require_activation(object, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  require_only(object, "add_cross_attention", false);
  require_only(object, "scale_attn_weights", true);
  require_only(object, "scale_attn_by_inverse_layer_idx", false);
  require_only(object, "reorder_and_upcast_attn", false);
  Gpt2Config gpt2;
  read_settings_of(object, gpt2);
  std::vector<double> rates;
  for (const std::string_view field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    const json::value value = json_field(object, field);
    rates.push_back(value.is_null() ? gpt2.dropout : read_real(field, value, {0, 0.99, true}));
  }
  if (rates[0] != rates[1] || rates[0] != rates[2])
    undecided["model.dropout"] =
        "'resid_pdrop' differs from embd_pdrop or attn_pdrop, which is not supported";
  gpt2.dropout = rates[0];
  return gpt2;
}

BertConfig read_bert(const json::object& object, Undecided& undecided) {
  require_activation(object, "hidden_act", {"gelu"});
  require_only(object, "position_embedding_type", "absolute");
  for (const std::string_view field : {"is_decoder", "add_cross_attention", "is_causal"})
    require_only(object, field, false);
  BertConfig bert;
  read_settings_of(object, bert);
  if (bert.embed_dim % bert.num_heads != 0)
    reject_field("hidden_size", "is not a multiple of num_attention_heads");
  const json::value head = json_field(object, "classifier_dropout");
  if (!head.is_null() && read_real("classifier_dropout", head, {0, 0.99, true}) != bert.dropout)
    undecided["model.dropout"] =
        "'classifier_dropout' differs from hidden_dropout_prob, which is not supported";
  return bert;
}

VitConfig read_vit(const json::object& object, Undecided& undecided) {
  require_activation(object, "hidden_act", {"gelu"});
  require_only(object, "qkv_bias", true);
  VitConfig vit;
  vit.layer_norm_eps = 1e-12;  // the default of transformers
  read_settings_of(object, vit);
  if (vit.hidden_dim % vit.num_heads != 0)
    reject_field("hidden_size", "is not a multiple of num_attention_heads");
  const json::value rate = json_field(object, "attention_probs_dropout_prob");
  if (!rate.is_null() && read_real("attention_probs_dropout_prob", rate, {0, 0.99, true}) != 0)
    undecided["model.dropout"] =
        "'attention_probs_dropout_prob' " + json_text(rate) + " is not supported (only 0)";
  return vit;
}

// `scaling`: the object of the field `name`.
std::optional<RopeScaling> read_rope_scaling(const json::object& object, std::string_view name,
                                             const json::object& scaling) {
  for (const auto& [key, value] : scaling)
    if (value.is_object())
      reject_field(name, "has separate settings for layers of type '" + one_line(key, 80) +
                             "', which is not supported");
  json::value type = json_field(scaling, "rope_type");
  if (type.is_null()) type = json_field(scaling, "type");
  if (type.is_null() || type == "default") return std::nullopt;
  RopeScaling rope;
  if (type == "linear")
    rope.rope_type = RopeType::kLinear;
  else if (type == "llama3")
    rope.rope_type = RopeType::kLlama3;
  else
    reject_field(name, "has the type " + json_text(type) +
                           ", which is not supported (only default, linear, llama3)");
  rope.factor = read_real("factor", json_field(scaling, "factor"), {1, kMaxSize, true});
  if (rope.rope_type == RopeType::kLinear) return rope;
  rope.low_freq_factor =
      read_real("low_freq_factor", json_field(scaling, "low_freq_factor"), {0, kMaxSize});
  rope.high_freq_factor = read_real("high_freq_factor", json_field(scaling, "high_freq_factor"),
                                    {rope.low_freq_factor, kMaxSize});
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const json::value original = json_field(scaling, kOriginal);
  rope.original_max_position_embeddings = read_count(kOriginal, original, 1e9);
  if (const json::value outer = json_field(object, kOriginal);
      !outer.is_null() && !is_same(outer, original))
    reject_field(kOriginal, json_text(outer) + " differs from that of " + std::string(name) + ", " +
                                json_text(original));
  return rope;
}

void read_rope(const json::object& object, LlamaConfig& llama) {
  std::optional<std::optional<RopeScaling>> scaling;  // set once read
  json::value theta = json_field(object, "rope_theta");
  const auto read_share = [](const json::object& from) {
    const json::value share = json_field(from, "partial_rotary_factor");
    if (!share.is_null() && read_real("partial_rotary_factor", share, {0, 1}) != 1)
      reject_field("partial_rotary_factor", json_text(share) + " is not supported (only 1)");
  };
  read_share(object);
  // Versions before and from transformers 5.
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    const json::value found = json_field(object, name);
    if (found.is_null()) continue;
    if (!found.is_object()) reject_value(name, found, "an object or null");
    const json::object& fields = found.as_object();
    read_share(fields);
    const json::value inner = json_field(fields, "rope_theta");
    if (!inner.is_null() && !theta.is_null() && !is_same(inner, theta))
      reject_field("rope_theta", json_text(theta) + " differs from that of " + std::string(name) +
                                     ", " + json_text(inner));
    if (!inner.is_null()) theta = inner;
    const std::optional<RopeScaling> read = read_rope_scaling(object, name, fields);
    if (scaling && *scaling != read)
      reject_field(name, "differs from rope_scaling; remove the wrong one");
    scaling = read;
  }
  if (!theta.is_null()) llama.rope_theta = read_real("rope_theta", theta, {1, 1e12});
  llama.rope_scaling = scaling.value_or(std::nullopt);
}

// Sliding-window attention is full attention in samples of at most this many tokens; nullopt: in all.
std::optional<int64_t> read_window(const json::object& object, const std::string& model_type,
                                   int64_t num_layers) {
  const json::value types = json_field(object, "layer_types");
  if (!types.is_null() && !types.is_array()) reject_value("layer_types", types, "a list");
  bool has_sliding = types.is_null();  // which layers have it follows from other fields
  if (types.is_array()) {
    for (const json::value& type : types.as_array()) {
      has_sliding = has_sliding || type == "sliding_attention";
      if (type != "full_attention" && type != "sliding_attention")
        reject_field("layer_types", "has " + json_text(type) +
                                        ", which is not supported (only full_attention, "
                                        "sliding_attention)");
    }
  }
  const bool is_mistral = model_type == "mistral";  // which does not read layer_types
  const bool is_qwen = model_type.starts_with("qwen");
  if (is_qwen && types.is_null()) {  // the layers from this one on
    const json::value first = json_field(object, "max_window_layers");
    has_sliding = (first.is_null() ? 28 : read_count("max_window_layers", first, 1e6)) < num_layers;
  }
  const bool is_enabled =
      is_mistral || (is_qwen && json_field(object, "use_sliding_window") == true);
  if (!is_enabled && types.is_array() && has_sliding)
    reject_field("layer_types", "has \"sliding_attention\" without a window");
  if (!is_enabled || (!is_mistral && !has_sliding)) return std::nullopt;
  const json::value* const found = object.if_contains("sliding_window");
  const json::value window =
      found == nullptr ? json::value(4096) : *found;  // transformers' default
  if (window.is_null()) return std::nullopt;
  return read_count("sliding_window", window, 1e12);
}

// That of transformers if the field is absent; if it is null, each head has its own.
std::optional<int64_t> default_num_key_value_heads(const json::object& object,
                                                   const std::string& model_type) {
  constexpr int64_t kMistral = 8, kQwen = 32;
  if (object.contains("num_key_value_heads") || model_type == "llama") return std::nullopt;
  return model_type == "mistral" ? kMistral : kQwen;
}

LlamaConfig read_llama(const json::object& object, const std::string& model_type,
                       std::optional<int64_t>& window) {
  require_activation(object, "hidden_act", {"silu", "swish"});
  LlamaConfig llama;
  read_settings_of(object, llama);
  if (!llama.num_key_value_heads)
    llama.num_key_value_heads = default_num_key_value_heads(object, model_type);
  if (model_type == "qwen3" && !object.contains("head_dim")) llama.head_dim = 128;
  read_rope(object, llama);
  window = read_window(object, model_type, llama.num_layers);
  if (window && *window >= llama.context_length) window.reset();
  if (window) llama.context_length = *window;
  const auto flag = [&](std::string_view field) {
    const json::value value = json_field(object, field);
    return !value.is_null() && read_bool(field, value);
  };
  if (model_type == "qwen2") llama.qkv_bias = true;
  if (model_type == "llama" || model_type == "qwen3")
    llama.qkv_bias = llama.proj_bias = flag("attention_bias");
  if (model_type == "llama") llama.mlp_bias = flag("mlp_bias");
  llama.qk_norm = model_type == "qwen3";
  const int64_t groups = llama.effective_num_key_value_heads();
  if (llama.num_heads % groups != 0)
    reject_field("num_key_value_heads", "does not divide num_attention_heads");
  if (llama.effective_head_dim() < 2 || llama.effective_head_dim() % 2 != 0)
    reject_field("head_dim", "must be an even number");
  return llama;
}

constexpr std::array<std::string_view, 8> kModelTypes{"gpt2",  "llama", "mistral", "qwen2",
                                                      "qwen3", "bert",  "resnet",  "vit"};

HuggingFaceConfig read_object(const json::object& object) {
  const json::value type = json_field(object, "model_type");
  const json::value architecture = json_field(object, "architecture");
  if (type.is_null() && architecture.is_string())
    return {.model_type = std::string(architecture.as_string()), .arch = read_timm_config(object)};
  if (!type.is_string() || std::ranges::count(kModelTypes, type.as_string()) == 0) {
    std::string words;
    for (const std::string_view word : kModelTypes)
      words += (words.empty() ? "" : ", ") + std::string(word);
    reject_field("model_type", json_text(type) + " is not supported (only " + words + ")");
  }
  if (!json_field(object, "quantization_config").is_null())
    reject_field("quantization_config",
                 "is not supported; use the folder of the model in full precision");
  HuggingFaceConfig config{.model_type = std::string(type.as_string()), .arch = {}};
  if (config.model_type == "bert") {
    const BertConfig bert = read_bert(object, config.undecided);
    config.arch = bert;
    read_pad_token<BertConfig>(object, 0, bert.vocab_size, config);
    return config;
  }
  if (config.model_type == "resnet") {
    config.arch = read_resnet_config(object);
    return config;
  }
  if (config.model_type == "vit") {
    config.arch = read_vit(object, config.undecided);
    return config;
  }
  require_only(object, "is_causal", true);
  if (config.model_type == "gpt2") {
    const Gpt2Config gpt2 = read_gpt2(object, config.undecided);
    if (gpt2.embed_dim % gpt2.num_heads != 0) reject_field("n_embd", "is not a multiple of n_head");
    config.arch = gpt2;
  } else {
    const LlamaConfig llama = read_llama(object, config.model_type, config.window);
    config.arch = llama;
    read_pad_token<LlamaConfig>(object, std::nullopt, *llama.vocab_size, config);
  }
  return config;
}

// ---- Differences

using config::setting_text;
std::string setting_text(int64_t value) { return std::to_string(value); }
std::string setting_text(const std::optional<int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}
std::string setting_text(bool value) { return value ? "true" : "false"; }
std::string setting_text(const std::optional<RopeScaling>& value) {
  if (!value) return "null";
  std::string text = "{rope_type: " + std::string(to_string(value->rope_type)) +
                     ", factor: " + setting_text(value->factor);
  if (value->rope_type == RopeType::kLlama3)
    text += ", low_freq_factor: " + setting_text(value->low_freq_factor) +
            ", high_freq_factor: " + setting_text(value->high_freq_factor) +
            ", original_max_position_embeddings: " +
            setting_text(value->original_max_position_embeddings);
  return text + "}";
}

// "model.embed_dim is 768, n_embd 1024; …", of the settings for which `is_compared(key)`; empty if
// there are none.
template <typename C, typename IsCompared>
std::string list_differences(const C& ours, const C& theirs, bool has_window,
                             const IsCompared& is_compared) {
  const C a = with_sizes(ours), b = with_sizes(theirs);
  const auto theirs_field = [&](const MappedSetting<C>& setting) {
    return has_window && setting.is_bound ? "sliding_window" : setting.field;
  };
  std::string text;
  for (const MappedSetting<C>& setting : settings_of(ours)) {
    if (!setting.is_compared || !is_compared("model." + std::string(setting.key))) continue;
    std::visit(
        [&](auto member) {
          // Of a vit, null is the size of the data, which the positions in the file have to fit.
          if constexpr (std::is_same_v<C, VitConfig>)
            if (setting.key == "image_size" && !a.image_size) return;
          if constexpr (std::is_same_v<decltype(member), int64_t C::*>)
            if (setting.is_bound && a.*member < b.*member) return;
          // Other arguments of linear scaling have no effect.
          const std::string is = setting_text(a.*member), wanted = setting_text(b.*member);
          if (is != wanted)
            text += (text.empty() ? "" : "; ") + ("model." + std::string(setting.key)) + " is " +
                    is + ", but " + std::string(theirs_field(setting)) + " " + wanted;
        },
        setting.member);
  }
  return text;
}

Result<HuggingFaceConfig> read_file_of(const std::string& file) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxHuggingFaceConfigBytes));
  return parse_huggingface_config(text, file);
}

std::string stoker_name(const HuggingFaceConfig& config) {
  return ModelConfig{.arch = config.arch}.name();
}

// Every vit… has the settings of any other.
bool is_model(const HuggingFaceConfig& theirs, const ModelConfig& model) {
  return model.name() == stoker_name(theirs) || (std::holds_alternative<VitConfig>(theirs.arch) &&
                                                 std::holds_alternative<VitConfig>(model.arch));
}

// "has model_type 'mistral'", "has architecture 'resnet50'".
std::string describe_type(const HuggingFaceConfig& config) {
  const bool is_timm = std::ranges::count(kModelTypes, config.model_type) == 0;
  return std::string("has ") + (is_timm ? "architecture" : "model_type") + " '" +
         config.model_type + "'";
}

// A file of tensors, which has no settings.
bool names_a_file(std::string_view path) {
  constexpr std::array<std::string_view, 4> kEndings{".safetensors", ".pt", ".pth", ".bin"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return path.ends_with(end); });
}

bool is_missing(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

template <typename C>
bool has_all_settings(const ExplicitKeys& keys, const C& config) {
  return std::ranges::all_of(settings_of(config), [&](const auto& setting) {
    return !has_key(config, setting.key) || keys.contains("model." + std::string(setting.key));
  });
}

template <typename C>
void apply_settings(const HuggingFaceConfig& found, const std::string& file,
                    const ExplicitKeys& keys, C& ours, ConfigErrors& errors) {
  const C& theirs = std::get<C>(found.arch);
  for (const auto& [key, what] : found.undecided)
    if (!keys.contains(key))
      errors.add(keys.location_of("model.pretrained.path"), "model.pretrained.path",
                 file + ": " + what + "; set " + key);
  if constexpr (requires { ours.vocab_size; })
    if (!ours.vocab_size) ours.vocab_size = theirs.vocab_size;
  const auto is_set = [&](std::string_view key) {
    return !has_key(ours, key) || keys.contains("model." + std::string(key));
  };
  for (const MappedSetting<C>& setting : settings_of(ours))
    if (!is_set(setting.key))
      std::visit([&](auto member) { ours.*member = theirs.*member; }, setting.member);
  const std::string differences =
      list_differences(ours, theirs, found.window.has_value(),
                       [&](const std::string& key) { return keys.contains(key); });
  if (!differences.empty())
    errors.add(keys.location_of("model.pretrained.path"), "model.pretrained.path",
               file + " has other settings: " + differences + "; remove these keys of model");
}

}  // namespace

std::string find_huggingface_config(const std::string& path) {
  std::string file = join_path(path, "config.json");
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? file : std::string();
}

Result<HuggingFaceConfig> parse_huggingface_config(std::string_view text, const std::string& path) {
  return read_foreign_json<HuggingFaceConfig>(text, path, read_object);
}

void apply_huggingface_config(const ExplicitKeys& keys, Config& config, ConfigErrors& errors) {
  if (!config.model.pretrained || errors.has_error_for("model.pretrained")) return;
  const auto apply = [&](auto& ours) {
    using C = std::decay_t<decltype(ours)>;
    const bool has_all = has_all_settings(keys, ours);
    constexpr bool kIsLanguageModel = requires { ours.vocab_size; };
    if constexpr (kIsLanguageModel) {
      if (has_all && ours.vocab_size) return;
    } else if (has_all) {
      return;
    }
    const auto add_error = [&](const std::string& message) {
      errors.add(keys.location_of("model.pretrained.path"), "model.pretrained.path", message);
    };
    const std::string& path = config.model.pretrained->path;
    const std::string file = find_huggingface_config(path);
    if (file.empty()) {
      // The defaults would be the sizes of another model.
      if (kIsLanguageModel && !has_all && !names_a_file(path) && is_missing(path))
        add_error(quoted(path) +
                  " does not exist, and model lacks settings, which a Hugging Face folder would "
                  "have; correct the path");
      return;
    }
    const auto found = read_file_of(file);
    if (!found.ok()) return add_error(found.status().message());
    const C* const theirs = std::get_if<C>(&found->arch);
    if (theirs == nullptr)
      return add_error(file + ' ' + describe_type(*found) + ", which is model " +
                       stoker_name(*found) + "; set model.name: " + stoker_name(*found));
    apply_settings<C>(*found, file, keys, ours, errors);
  };
  if (auto* const gpt2 = std::get_if<Gpt2Config>(&config.model.arch)) apply(*gpt2);
  if (auto* const llama = std::get_if<LlamaConfig>(&config.model.arch)) apply(*llama);
  if (auto* const bert = std::get_if<BertConfig>(&config.model.arch)) apply(*bert);
  if (auto* const vit = std::get_if<VitConfig>(&config.model.arch)) apply(*vit);
}

Status check_huggingface_config(const ModelConfig& model, const std::string& path) {
  const std::string file = find_huggingface_config(path);
  STOKER_ASSIGN_OR_RETURN(const HuggingFaceConfig found, read_file_of(file));
  if (!is_model(found, model))
    return Status(StatusCode::kMismatch, file + ": " + describe_type(found) +
                                             ", but model.name is " + model.name() +
                                             "; set model.name: " + stoker_name(found));
  const std::string differences = std::visit(
      [&](const auto& theirs) -> std::string {
        using C = std::decay_t<decltype(theirs)>;
        if constexpr (requires { settings_of(theirs); })
          return list_differences(std::get<C>(model.arch), theirs, found.window.has_value(),
                                  [](const std::string&) { return true; });
        return {};
      },
      found.arch);
  if (differences.empty()) return {};
  return Status(StatusCode::kMismatch, file + ": has other settings: " + differences);
}

// ---- Writing

namespace {

template <typename C>
void write_settings(const C& config, json::object& object) {
  const C full = with_sizes(config);
  for (const MappedSetting<C>& setting : settings_of(config)) {
    if (!setting.has_own_field) continue;
    std::visit(
        [&](auto member) {
          const auto& value = full.*member;
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::optional<int64_t>>)
            object[setting.field] = value ? json::value(*value) : json::value();
          else if constexpr (!std::is_same_v<T, std::optional<RopeScaling>>)
            object[setting.field] = value;
        },
        setting.member);
  }
}

template <typename C>
void write_pad_token(const C& config, json::object& object) {
  object["pad_token_id"] = config.pad_token ? json::value(*config.pad_token) : json::value();
}

json::object write_object(const Gpt2Config& gpt2) {
  json::object object{{"architectures", {"GPT2LMHeadModel"}},
                      {"model_type", "gpt2"},
                      {"activation_function", "gelu_new"}};
  write_settings(gpt2, object);
  for (const std::string_view field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    object[field] = gpt2.dropout;
  return object;
}

json::object write_head(const HuggingFaceHead& head) {
  json::object names, ids;
  for (int64_t i = 0; i < head.num_labels; ++i) {
    const std::string name = "LABEL_" + std::to_string(i);
    names[std::to_string(i)] = name;
    ids[name] = i;
  }
  json::object object{{"id2label", std::move(names)}, {"label2id", std::move(ids)}};
  if (!head.problem_type.empty()) object["problem_type"] = head.problem_type;
  return object;
}

Result<json::object> write_object(const BertConfig& bert, const HuggingFaceHead& head) {
  if (bert.pooling == BertPooling::kMean)
    return Status(StatusCode::kInvalidArgument,
                  "transformers has no class for model bert with model.pooling mean");
  const bool is_per_token = bert.pooling == BertPooling::kNone;
  json::object object{
      {"architectures",
       {is_per_token ? "BertForTokenClassification" : "BertForSequenceClassification"}},
      {"model_type", "bert"},
      {"hidden_act", "gelu"},
      {"position_embedding_type", "absolute"}};
  write_settings(bert, object);
  write_pad_token(bert, object);
  json::object outputs = write_head(head);
  if (is_per_token) outputs.erase("problem_type");
  for (auto& [key, value] : outputs) object[key] = std::move(value);
  return object;
}

json::object write_object(const VitConfig& vit, const HuggingFaceHead& head) {
  json::object object = write_head(head);
  object["architectures"] = {"ViTForImageClassification"};
  object["model_type"] = "vit";
  object["hidden_act"] = "gelu";
  object["attention_probs_dropout_prob"] = 0.0;
  object["qkv_bias"] = true;
  object["num_channels"] = head.num_channels;
  write_settings(vit, object);
  return object;
}

Result<json::object> write_object(const ResnetConfig& resnet, const HuggingFaceHead& head) {
  const ResnetLayout* const layout = find_resnet_layout(resnet.depth);
  if (layout == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  "model resnet" + std::to_string(resnet.depth) +
                      " has no Hugging Face format (only resnet18, 34, 50, 101, 152)");
  json::object object = write_head(head);
  object["architectures"] = {"ResNetForImageClassification"};
  object["model_type"] = "resnet";
  object["layer_type"] = layout->has_bottlenecks ? "bottleneck" : "basic";
  object["hidden_act"] = "relu";
  object["embedding_size"] = 64;
  object["downsample_in_first_stage"] = false;
  object["downsample_in_bottleneck"] = false;
  object["num_channels"] = head.num_channels;
  const std::vector<int64_t> widths = stage_widths(*layout);
  object["depths"] = json::array(std::begin(layout->blocks), std::end(layout->blocks));
  object["hidden_sizes"] = json::array(widths.begin(), widths.end());
  return object;
}

// Mistral without a sliding window is Llama, but with any embed_dim: LlamaConfig of transformers
// requires a multiple of num_heads.
Result<json::object> write_object(const LlamaConfig& llama) {
  const bool is_qwen2 = !llama.qk_norm && llama.qkv_bias && !llama.proj_bias;
  if ((llama.qkv_bias != llama.proj_bias && !is_qwen2) ||
      (llama.mlp_bias && (is_qwen2 || llama.qk_norm)))
    return Status(StatusCode::kInvalidArgument,
                  "no model_type of Hugging Face has these settings together: model.qkv_bias " +
                      setting_text(llama.qkv_bias) + ", proj_bias " +
                      setting_text(llama.proj_bias) + ", mlp_bias " + setting_text(llama.mlp_bias) +
                      ", qk_norm " + setting_text(llama.qk_norm));
  const bool is_qwen = llama.qk_norm || is_qwen2;
  const bool is_mistral = !is_qwen && llama.embed_dim % llama.num_heads != 0;
  if (is_mistral && (llama.qkv_bias || llama.mlp_bias))
    return Status(StatusCode::kInvalidArgument,
                  "transformers has no model with biases whose model.embed_dim (" +
                      setting_text(llama.embed_dim) + ") is not a multiple of num_heads (" +
                      setting_text(llama.num_heads) + "), without model.qk_norm");
  const auto [type, architecture] = llama.qk_norm ? std::pair("qwen3", "Qwen3")
                                    : is_qwen2    ? std::pair("qwen2", "Qwen2")
                                    : is_mistral  ? std::pair("mistral", "Mistral")
                                                  : std::pair("llama", "Llama");
  json::object object{{"architectures", {std::string(architecture) + "ForCausalLM"}},
                      {"model_type", type},
                      {"hidden_act", "silu"}};
  write_settings(llama, object);
  write_pad_token(llama, object);
  if (!is_qwen2 && !is_mistral) object["attention_bias"] = llama.qkv_bias;
  if (is_qwen)
    object["use_sliding_window"] = false;
  else if (is_mistral)
    object["sliding_window"] = nullptr;
  else
    object["mlp_bias"] = llama.mlp_bias;
  object["rope_theta"] = llama.rope_theta;
  object["rope_scaling"] = nullptr;
  if (!llama.rope_scaling) return object;
  const RopeScaling& rope = *llama.rope_scaling;
  json::object scaling{{"rope_type", to_string(rope.rope_type)}, {"factor", rope.factor}};
  if (rope.rope_type == RopeType::kLlama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  object["rope_scaling"] = std::move(scaling);
  return object;
}

}  // namespace

Result<std::string> format_huggingface_config(const ModelVariant& arch,
                                              const HuggingFaceHead& head) {
  Result<json::object> object = [&]() -> Result<json::object> {
    if (const auto* const gpt2 = std::get_if<Gpt2Config>(&arch)) return write_object(*gpt2);
    if (const auto* const llama = std::get_if<LlamaConfig>(&arch)) return write_object(*llama);
    if (const auto* const bert = std::get_if<BertConfig>(&arch)) return write_object(*bert, head);
    if (const auto* const vit = std::get_if<VitConfig>(&arch)) return write_object(*vit, head);
    if (const auto* const resnet = std::get_if<ResnetConfig>(&arch))
      return write_object(*resnet, head);
    return Status(StatusCode::kInvalidArgument,
                  "model " + ModelConfig{.arch = arch}.name() +
                      " has no Hugging Face format (only gpt2, llama, bert, resnet, vit)");
  }();
  if (!object.ok()) return object.status();
  (*object)["torch_dtype"] = "float32";
  return json::serialize(*object);
}

}  // namespace stoker::config
