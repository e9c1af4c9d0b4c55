// Decoder: the decoder-only transformers gpt, gpt2 and llama. They consist of the same blocks and differ
// by the settings in DecoderSettings.
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/key_value_cache.h"
#include "shared/model/linear.h"
#include "shared/model/model_factories.h"
#include "shared/model/rope.h"
#include "shared/model/token_embedding.h"
#include "shared/model/transformer_block.h"

namespace stoker::model {
namespace {

struct DecoderSettings {
  std::string name;  // of the model
  int64_t num_layers = 0;
  int64_t context_length = 0, vocab_size = 0;
  std::optional<Rope> rope;  // instead of learned positions
  bool tie_weights = false;
  std::optional<int64_t> pad_token;
  bool scales_residual_init = true;
  double dropout = 0;  // of embeddings
  BlockSettings block;
};

// Each time step of a sample of several documents attends to those before it in its document.
at::Tensor block_diagonal(const at::Tensor& position_ids) {
  const at::NoGradGuard no_grad;
  const at::Tensor document = position_ids.eq(0).cumsum(1);
  return document.unsqueeze(2).eq(document.unsqueeze(1)).tril().unsqueeze(1);
}

class Decoder : public Model {
 public:
  explicit Decoder(DecoderSettings settings)
      : settings_(std::move(settings)),
        tok_(register_module(
            "tok", make_token_embedding(settings_.vocab_size, width(), settings_.pad_token))) {
    if (!settings_.rope)
      pos_ = register_module("pos", torch::nn::Embedding(settings_.context_length, width()));
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < settings_.num_layers; ++i)
      blocks_.push_back(list->register_module(std::to_string(i),
                                              std::make_shared<TransformerBlock>(settings_.block)));
    ln_ = register_module("ln", std::make_shared<NormLayer>(settings_.block, width()));
    if (!settings_.tie_weights)
      head_ = register_module("head", make_linear(width(), settings_.vocab_size, false));
    initialize();
  }

  at::Tensor forward(const at::Tensor& input) override { return head(features(input, {})); }
  at::Tensor forward_packed(const at::Tensor& input, const at::Tensor& position_ids) override {
    return head(features(input, position_ids));
  }

  at::Tensor next_logits(const at::Tensor& tokens, KeyValueCache& cache) override {
    check_size(tokens);
    const int64_t past = cache.length();
    BlockContext context;
    at::Tensor x = embed(tokens.narrow(1, past, tokens.size(1) - past), past, context);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      context.maybe_cache = &cache.layer(i);
      x = blocks_[i]->forward(x, context);
    }
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
  int64_t width() const { return settings_.block.embed_dim; }

  // The input of the head. `position_ids`: undefined if each sample is one document.
  at::Tensor features(const at::Tensor& input, const at::Tensor& position_ids) {
    check_size(input);
    BlockContext context;
    at::Tensor x = position_ids.defined() ? embed_packed(input, position_ids, context)
                                          : embed(input, 0, context);
    for (const auto& block : blocks_)
      x = block->forward_checkpointed(x, context, adapter_dropout());
    return ln_->forward(x);
  }

  void check_size(const at::Tensor& input) const {
    TORCH_CHECK(input.dim() == 2 && input.size(1) <= settings_.context_length, settings_.name,
                ": input is ", input.sizes(), ", the maximum is ", settings_.context_length,
                " tokens per sample");
  }

  // The tokens at positions from `first` on. Sets the angles of these positions in `context` if the
  // model has them.
  at::Tensor embed(const at::Tensor& tokens, int64_t first, BlockContext& context) {
    const int64_t time = tokens.size(1);
    at::Tensor x = tok_(tokens);
    if (settings_.rope) {
      const RopeTables tables = settings_.rope->tables(first + time, x);
      context.rope = {tables.cos.narrow(0, first, time), tables.sin.narrow(0, first, time)};
    } else {
      x = x + pos_->weight.narrow(0, first, time);
    }
    return drop_out(x, settings_.dropout, is_training());
  }

  // As embed(), for tokens at any positions.
  at::Tensor embed_packed(const at::Tensor& tokens, const at::Tensor& position_ids,
                          BlockContext& context) {
    const int64_t batch = tokens.size(0), time = tokens.size(1);
    context.mask = block_diagonal(position_ids);
    at::Tensor x = tok_(tokens);
    if (settings_.rope) {
      const RopeTables tables = settings_.rope->tables(time, x);
      const at::Tensor positions = position_ids.flatten();
      const auto of_positions = [&](const at::Tensor& table) {
        return table.index_select(0, positions).view({batch, 1, time, table.size(1)});
      };
      context.rope = {of_positions(tables.cos), of_positions(tables.sin)};
    } else {
      x = x + pos_(position_ids);
    }
    return drop_out(x, settings_.dropout, is_training());
  }

  at::Tensor head(const at::Tensor& x) {
    return settings_.tie_weights ? linear(x, tok_->weight, /*bias=*/at::Tensor())
                                 : linear(head_, x);
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
    zero_pad_token(tok_);
  }

  DecoderSettings settings_;
  torch::nn::Embedding tok_, pos_{nullptr};
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
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
                         .context_length = config.context_length,
                         .vocab_size = *config.vocab_size,
                         .block = {.embed_dim = config.embed_dim,
                                   .mlp_dim = 4 * config.embed_dim,
                                   .num_heads = config.num_heads,
                                   .num_key_value_heads = config.num_heads,
                                   .head_dim = config.embed_dim / config.num_heads,
                                   .activation_checkpointing = config.activation_checkpointing}};
}

Status check_heads(const DecoderSettings& settings) {
  const auto& [width, heads] = std::pair(settings.block.embed_dim, settings.block.num_heads);
  if (width % heads == 0) return {};
  return Status(StatusCode::kInvalidArgument,
                "model " + settings.name + ": embed_dim (" + std::to_string(width) +
                    ") must be a multiple of num_heads (" + std::to_string(heads) + ")");
}

}  // namespace

Result<ModelPtr> make_gpt(const config::GptConfig& config, const Samples& sample,
                          uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("gpt", config));
  STOKER_RETURN_IF_ERROR(check_heads(settings));
  settings.dropout = settings.block.dropout = settings.block.attention_dropout = config.dropout;
  return make_decoder(std::move(settings), sample, classes);
}

Result<ModelPtr> make_gpt2(const config::Gpt2Config& config, const Samples& sample,
                           uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("gpt2", config));
  STOKER_RETURN_IF_ERROR(check_heads(settings));
  settings.block.mlp_dim = config.effective_mlp_dim();
  settings.block.norm_eps = config.layer_norm_eps;
  settings.block.activation = Activation::kGeluTanh;
  settings.tie_weights = config.tie_weights;
  settings.dropout = settings.block.dropout = settings.block.attention_dropout = config.dropout;
  return make_decoder(std::move(settings), sample, classes);
}

Result<ModelPtr> make_llama(const config::LlamaConfig& config, const Samples& sample,
                            uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(DecoderSettings settings, make_settings("llama", config));
  if (!config.head_dim) STOKER_RETURN_IF_ERROR(check_heads(settings));
  BlockSettings& block = settings.block;
  block.num_key_value_heads = config.effective_num_key_value_heads();
  block.head_dim = config.effective_head_dim();
  if (block.num_key_value_heads < 1 || block.num_heads % block.num_key_value_heads != 0 ||
      block.head_dim < 2 || block.head_dim % 2 != 0 || config.effective_mlp_dim() < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "model llama: num_key_value_heads (" + std::to_string(block.num_key_value_heads) +
                      ") must divide num_heads (" + std::to_string(block.num_heads) +
                      "), head_dim (" + std::to_string(block.head_dim) +
                      ") must be even, and mlp_dim at least 1");
  }
  block.mlp_dim = config.effective_mlp_dim();
  block.norm = Norm::kRms;
  block.norm_eps = config.rms_norm_eps;
  block.activation = Activation::kSwiglu;
  block.has_fused_qkv = false;
  block.qkv_bias = config.qkv_bias;
  block.proj_bias = config.proj_bias;
  block.mlp_bias = config.mlp_bias;
  block.qk_norm = config.qk_norm;
  settings.rope.emplace(block.head_dim, config.rope_theta, config.rope_scaling);
  settings.tie_weights = config.tie_weights;
  if (config.pad_token && *config.pad_token >= *config.vocab_size)
    return Status(StatusCode::kInvalidArgument,
                  "model llama: pad_token (" + std::to_string(*config.pad_token) +
                      ") must be below vocab_size (" + std::to_string(*config.vocab_size) + ")");
  settings.pad_token = config.pad_token;
  settings.scales_residual_init = false;
  block.attention_dropout = config.attention_dropout;
  return make_decoder(std::move(settings), sample, classes);
}

}  // namespace stoker::model
