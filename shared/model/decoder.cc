// Decoder: the decoder-only transformers gpt, gpt2 and llama. They consist of the same pre-norm blocks
// and differ by the settings in DecoderSettings.
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/activation_checkpointing.h"
#include "shared/model/attention.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/key_value_cache.h"
#include "shared/model/linear.h"
#include "shared/model/model_factories.h"
#include "shared/model/norm.h"
#include "shared/model/rope.h"
#include "shared/model/swiglu.h"

namespace stoker::model {
namespace {

enum class Norm { kLayer, kRms };
enum class Activation { kGelu, kGeluTanh, kSwiglu };

struct DecoderSettings {
  std::string name;  // of the model
  int64_t num_layers = 0, embed_dim = 0, mlp_dim = 0;
  int64_t num_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t context_length = 0, vocab_size = 0;
  Norm norm = Norm::kLayer;
  double norm_eps = 1e-5;
  Activation activation = Activation::kGelu;
  bool has_fused_qkv = true;  // one projection to queries, keys and values; with a head each
  bool qkv_bias = true, proj_bias = true, mlp_bias = true, qk_norm = false;
  std::optional<Rope> rope;  // instead of learned positions
  bool tie_weights = false;
  bool scales_residual_init = true;
  double dropout = 0;  // of embeddings and of what blocks add to them
  double attention_dropout = 0;
  bool activation_checkpointing = false;
};

// LayerNorm, or RMSNorm, which has no bias.
class NormLayer : public torch::nn::Module {
 public:
  NormLayer(const DecoderSettings& settings, int64_t width)
      : eps_(settings.norm_eps), weight_(register_parameter("weight", at::ones({width}))) {
    if (settings.norm == Norm::kLayer) bias_ = register_parameter("bias", at::zeros({width}));
  }

  at::Tensor forward(const at::Tensor& x) const { return norm(x, {weight_, bias_, eps_}); }
  AddedNorm add(const at::Tensor& x, const at::Tensor& delta) const {
    return add_norm(x, delta, {weight_, bias_, eps_});
  }

 private:
  const double eps_;
  at::Tensor weight_, bias_;
};
using NormPtr = std::shared_ptr<NormLayer>;

torch::nn::Linear make_linear(int64_t inputs, int64_t outputs, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

at::Tensor drop_out(const at::Tensor& x, double rate, bool is_training) {
  return rate > 0 && is_training ? at::dropout(x, rate, true) : x;
}

// What blocks know about the time steps of their input.
struct TimeSteps {
  RopeTables rope;  // of their positions, if the model has them
  at::Tensor
      sees;  // Bool [batch, 1, time, time]: which ones each attends to; undefined: all before
};

// Each time step of a sample of several documents attends to those before it in its document.
at::Tensor block_diagonal(const at::Tensor& position_ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor document = position_ids.eq(0).cumsum(1);
  return document.unsqueeze(2).eq(document.unsqueeze(1)).tril().unsqueeze(1);
}

class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const DecoderSettings& settings) : settings_(settings) {
    const int64_t width = settings.embed_dim, heads_width = settings.num_heads * settings.head_dim,
                  groups_width = settings.num_key_value_heads * settings.head_dim;
    const auto add_norm = [&](const char* name, int64_t size) {
      return register_module(name, std::make_shared<NormLayer>(settings, size));
    };
    const auto add_linear = [&](const char* name, int64_t inputs, int64_t outputs, bool bias) {
      return register_module(name, make_linear(inputs, outputs, bias));
    };
    ln1_ = add_norm("ln1", width);
    if (settings.has_fused_qkv) {
      qkv_ = add_linear("qkv", width, 3 * width, settings.qkv_bias);
    } else {
      q_ = add_linear("q", width, heads_width, settings.qkv_bias);
      k_ = add_linear("k", width, groups_width, settings.qkv_bias);
      v_ = add_linear("v", width, groups_width, settings.qkv_bias);
    }
    if (settings.qk_norm) {
      q_norm_ = add_norm("q_norm", settings.head_dim);
      k_norm_ = add_norm("k_norm", settings.head_dim);
    }
    proj_ = add_linear("proj", heads_width, width, settings.proj_bias);
    ln2_ = add_norm("ln2", width);
    if (settings.activation == Activation::kSwiglu)
      gate_ = add_linear("gate", width, settings.mlp_dim, settings.mlp_bias);
    up_ = add_linear("up", width, settings.mlp_dim, settings.mlp_bias);
    down_ = add_linear("down", settings.mlp_dim, width, settings.mlp_bias);
  }

  // `maybe_cache`: the keys and values of the time steps before those of `x`, to which theirs are
  // appended.
  at::Tensor forward(const at::Tensor& x, const TimeSteps& steps,
                     CachedLayer* maybe_cache = nullptr) {
    const at::Tensor attended = linear(proj_, attend(ln1_->forward(x), steps, maybe_cache));
    const auto [y, normalized] = ln2_->add(x, drop(attended));
    return y + drop(linear(down_, activate(normalized)));
  }

 private:
  struct Heads {
    at::Tensor q, k, v;  // [batch, heads, time, head_dim]
  };

  Heads project(const at::Tensor& x, const RopeTables& rope) {
    if (settings_.has_fused_qkv) {
      const std::vector<at::Tensor> qkv = split_heads(linear(qkv_, x), settings_.num_heads);
      return {qkv[0], qkv[1], qkv[2]};
    }
    Heads heads{by_head(linear(q_, x), settings_.num_heads),
                by_head(linear(k_, x), settings_.num_key_value_heads),
                by_head(linear(v_, x), settings_.num_key_value_heads)};
    if (settings_.qk_norm) {
      heads.q = q_norm_->forward(heads.q);
      heads.k = k_norm_->forward(heads.k);
    }
    if (settings_.rope) {
      heads.q = rotate(heads.q, rope);
      heads.k = rotate(heads.k, rope);
    }
    return heads;
  }

  at::Tensor attend(const at::Tensor& x, const TimeSteps& steps, CachedLayer* maybe_cache) {
    const int64_t batch = x.size(0), time = x.size(1);
    const Heads heads = project(x, steps.rope);
    if (maybe_cache) maybe_cache->append({heads.k, heads.v});
    const bool has_past = maybe_cache && maybe_cache->length() > time;
    const at::Tensor attended =
        has_past ? attend_to_past(heads.q, maybe_cache->all()) : attend(heads, steps.sees);
    return attended.transpose(1, 2).reshape(
        {batch, time, settings_.num_heads * settings_.head_dim});
  }

  at::Tensor attend(const Heads& heads, const at::Tensor& sees) const {
    return at::scaled_dot_product_attention(heads.q, repeat_groups(heads.k), repeat_groups(heads.v),
                                            sees.defined() ? std::optional(sees) : std::nullopt,
                                            is_training() ? settings_.attention_dropout : 0.0,
                                            /*is_causal=*/!sees.defined());
  }

  at::Tensor by_head(const at::Tensor& x, int64_t heads) const {
    return x.view({x.size(0), x.size(1), heads, settings_.head_dim}).transpose(1, 2);
  }

  // Each head of keys and values serves the same number of queries' heads. Repeated, because the
  // fast kernels of the CPU want as many of either.
  at::Tensor repeat_groups(const at::Tensor& x) const {
    const int64_t repeats = settings_.num_heads / settings_.num_key_value_heads;
    if (repeats == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), x.size(1), repeats, x.size(2), x.size(3)})
        .reshape({x.size(0), settings_.num_heads, x.size(2), x.size(3)});
  }

  at::Tensor activate(const at::Tensor& x) {
    switch (settings_.activation) {
      case Activation::kGelu:
        return at::gelu(linear(up_, x));
      case Activation::kGeluTanh:
        return at::gelu(linear(up_, x), "tanh");
      case Activation::kSwiglu:
        break;
    }
    return swiglu(linear(gate_, x), linear(up_, x));
  }

  at::Tensor drop(const at::Tensor& x) const {
    return drop_out(x, settings_.dropout, is_training());
  }

  const DecoderSettings& settings_;  // of the model
  NormPtr ln1_, q_norm_, k_norm_, ln2_;
  torch::nn::Linear qkv_{nullptr}, q_{nullptr}, k_{nullptr}, v_{nullptr}, proj_{nullptr};
  torch::nn::Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
};

class Decoder : public Model {
 public:
  explicit Decoder(DecoderSettings settings)
      : settings_(std::move(settings)),
        tok_(register_module("tok",
                             torch::nn::Embedding(settings_.vocab_size, settings_.embed_dim))) {
    if (!settings_.rope)
      pos_ = register_module("pos",
                             torch::nn::Embedding(settings_.context_length, settings_.embed_dim));
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < settings_.num_layers; ++i)
      blocks_.push_back(
          list->register_module(std::to_string(i), std::make_shared<DecoderBlock>(settings_)));
    ln_ = register_module("ln", std::make_shared<NormLayer>(settings_, settings_.embed_dim));
    if (!settings_.tie_weights)
      head_ =
          register_module("head", make_linear(settings_.embed_dim, settings_.vocab_size, false));
    initialize();
  }

  at::Tensor forward(const at::Tensor& input) override { return head(features(input, {})); }
  at::Tensor forward_packed(const at::Tensor& input, const at::Tensor& position_ids) override {
    return head(features(input, position_ids));
  }

  at::Tensor next_logits(const at::Tensor& tokens, KeyValueCache& cache) override {
    check_size(tokens);
    const int64_t past = cache.length();
    TimeSteps steps;
    at::Tensor x = embed(tokens.narrow(1, past, tokens.size(1) - past), past, steps);
    for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i]->forward(x, steps, &cache.layer(i));
    return head(ln_->forward(x.select(1, -1)));
  }

  HeadInput forward_features(const at::Tensor& input) override {
    return packed_features(input, /*position_ids=*/{});
  }
  HeadInput packed_features(const at::Tensor& input, const at::Tensor& position_ids) override {
    if (settings_.tie_weights) return {features(input, position_ids), tok_->weight};
    if (!head_->children().empty()) return {};  // it has an adapter
    return {features(input, position_ids), head_->weight};
  }

  int64_t context() const override { return settings_.context_length; }
  int64_t vocab() const override { return settings_.vocab_size; }
  std::string output_layer() const override { return settings_.tie_weights ? "" : "head"; }
  bool ties_output() const override { return settings_.tie_weights; }

 private:
  // The input of the head. `position_ids`: undefined if each sample is one document.
  at::Tensor features(const at::Tensor& input, const at::Tensor& position_ids) {
    check_size(input);
    TimeSteps steps;
    at::Tensor x =
        position_ids.defined() ? embed_packed(input, position_ids, steps) : embed(input, 0, steps);
    for (const auto& block : blocks_)
      x = settings_.activation_checkpointing ? run_checkpointed(*block, x, steps)
                                             : block->forward(x, steps);
    return ln_->forward(x);
  }

  void check_size(const at::Tensor& input) const {
    TORCH_CHECK(input.dim() == 2 && input.size(1) <= settings_.context_length, settings_.name,
                ": input is ", input.sizes(), ", the maximum is ", settings_.context_length,
                " tokens per sample");
  }

  // The tokens at positions from `first` on. Sets the angles of these positions in `steps` if the
  // model has them.
  at::Tensor embed(const at::Tensor& tokens, int64_t first, TimeSteps& steps) {
    const int64_t time = tokens.size(1);
    at::Tensor x = tok_(tokens);
    if (settings_.rope) {
      const RopeTables tables = settings_.rope->tables(first + time, x);
      steps.rope = {tables.cos.narrow(0, first, time), tables.sin.narrow(0, first, time)};
    } else {
      x = x + pos_->weight.narrow(0, first, time);
    }
    return drop_out(x, settings_.dropout, is_training());
  }

  // As embed(), for tokens at any positions.
  at::Tensor embed_packed(const at::Tensor& tokens, const at::Tensor& position_ids,
                          TimeSteps& steps) {
    const int64_t batch = tokens.size(0), time = tokens.size(1);
    steps.sees = block_diagonal(position_ids);
    at::Tensor x = tok_(tokens);
    if (settings_.rope) {
      const RopeTables tables = settings_.rope->tables(time, x);
      const at::Tensor positions = position_ids.flatten();
      const auto of_positions = [&](const at::Tensor& table) {
        return table.index_select(0, positions).view({batch, 1, time, table.size(1)});
      };
      steps.rope = {of_positions(tables.cos), of_positions(tables.sin)};
    } else {
      x = x + pos_(position_ids);
    }
    return drop_out(x, settings_.dropout, is_training());
  }

  at::Tensor head(const at::Tensor& x) {
    return settings_.tie_weights ? linear_without_bias(x, tok_->weight) : linear(head_, x);
  }

  at::Tensor run_checkpointed(DecoderBlock& block, const at::Tensor& x,
                              const TimeSteps& steps) const {
    const bool uses_random = settings_.dropout > 0 || settings_.attention_dropout > 0 ||
                             (adapter() != nullptr && adapter()->dropout > 0);
    return checkpoint_activations(
        [&block, steps](const at::Tensor& input) { return block.forward(input, steps); }, x,
        block.parameters(), uses_random && is_training());
  }

  // N(0, 0.02), as in GPT-2 and Llama. In GPT-2, the standard deviation of the projections that add
  // to the residual stream is divided by the square root of their number.
  void initialize() {
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(settings_.num_layers));
    for (auto& item : named_parameters()) {
      const std::string& name = item.key();
      const bool is_residual = settings_.scales_residual_init &&
                               (name.ends_with("proj.weight") || name.ends_with("down.weight"));
      if (item.value().dim() == 2)
        torch::nn::init::normal_(item.value(), 0.0, is_residual ? residual : 0.02);
      else if (name.ends_with("bias"))
        torch::nn::init::zeros_(item.value());
    }
  }

  DecoderSettings settings_;
  torch::nn::Embedding tok_, pos_{nullptr};
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  NormPtr ln_;
  torch::nn::Linear head_{nullptr};
};

Result<ModelPtr> make_decoder(DecoderSettings settings, const Samples& sample, uint64_t classes) {
  STOKER_RETURN_IF_ERROR(validate_vocab({settings.context_length, settings.vocab_size}, sample,
                                        classes, settings.name));
  return ModelPtr(std::make_shared<Decoder>(std::move(settings)));
}

// The settings that all have. kInvalidArgument: a size is below 1.
Result<DecoderSettings> make_settings(const std::string& name, const auto& config) {
  if (config.num_layers < 1 || config.embed_dim < 1 || config.num_heads < 1 ||
      config.context_length < 1 || config.vocab_size.value_or(0) < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "model " + name +
                      ": num_layers, embed_dim, num_heads, context_length and vocab_size must be "
                      "at least 1");
  }
  return DecoderSettings{.name = name,
                         .num_layers = config.num_layers,
                         .embed_dim = config.embed_dim,
                         .mlp_dim = 4 * config.embed_dim,
                         .num_heads = config.num_heads,
                         .num_key_value_heads = config.num_heads,
                         .head_dim = config.embed_dim / config.num_heads,
                         .context_length = config.context_length,
                         .vocab_size = *config.vocab_size,
                         .activation_checkpointing = config.activation_checkpointing};
}

Status check_heads(const DecoderSettings& settings) {
  if (settings.embed_dim % settings.num_heads == 0) return {};
  return Status(StatusCode::kInvalidArgument, "model " + settings.name + ": embed_dim (" +
                                                  std::to_string(settings.embed_dim) +
                                                  ") must be a multiple of num_heads (" +
                                                  std::to_string(settings.num_heads) + ")");
}

}  // namespace

Result<ModelPtr> make_gpt(const config::GptConfig& config, const Samples& sample,
                          uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("gpt", config));
  STOKER_RETURN_IF_ERROR(check_heads(settings));
  settings.dropout = settings.attention_dropout = config.dropout;
  return make_decoder(std::move(settings), sample, classes);
}

Result<ModelPtr> make_gpt2(const config::Gpt2Config& config, const Samples& sample,
                           uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("gpt2", config));
  STOKER_RETURN_IF_ERROR(check_heads(settings));
  settings.mlp_dim = config.effective_mlp_dim();
  settings.norm_eps = config.layer_norm_eps;
  settings.activation = Activation::kGeluTanh;
  settings.tie_weights = config.tie_weights;
  settings.dropout = settings.attention_dropout = config.dropout;
  return make_decoder(std::move(settings), sample, classes);
}

Result<ModelPtr> make_llama(const config::LlamaConfig& config, const Samples& sample,
                            uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("llama", config));
  if (!config.head_dim) STOKER_RETURN_IF_ERROR(check_heads(settings));
  settings.num_key_value_heads = config.effective_num_key_value_heads();
  settings.head_dim = config.effective_head_dim();
  if (settings.num_key_value_heads < 1 || settings.num_heads % settings.num_key_value_heads != 0 ||
      settings.head_dim < 2 || settings.head_dim % 2 != 0 || config.effective_mlp_dim() < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "model llama: num_key_value_heads (" +
                      std::to_string(settings.num_key_value_heads) + ") must divide num_heads (" +
                      std::to_string(settings.num_heads) + "), head_dim (" +
                      std::to_string(settings.head_dim) + ") must be even, and mlp_dim at least 1");
  }
  settings.mlp_dim = config.effective_mlp_dim();
  settings.norm = Norm::kRms;
  settings.norm_eps = config.rms_norm_eps;
  settings.activation = Activation::kSwiglu;
  settings.has_fused_qkv = false;
  settings.qkv_bias = config.qkv_bias;
  settings.proj_bias = config.proj_bias;
  settings.mlp_bias = config.mlp_bias;
  settings.qk_norm = config.qk_norm;
  settings.rope.emplace(settings.head_dim, config.rope_theta, config.rope_scaling);
  settings.tie_weights = config.tie_weights;
  settings.scales_residual_init = false;
  settings.attention_dropout = config.attention_dropout;
  return make_decoder(std::move(settings), sample, classes);
}

}  // namespace stoker::model
