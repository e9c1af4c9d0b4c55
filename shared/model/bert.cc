// bert: a bidirectional encoder of token sequences with learned positions, and a linear layer over the
// pooled first token, over the mean of all tokens, or over each token. Padding has no effect.
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/linear.h"
#include "shared/model/model_factories.h"
#include "shared/model/token_embedding.h"
#include "shared/model/transformer_block.h"

namespace stoker::model {
namespace {

BlockSettings block_settings(const config::BertConfig& config) {
  return {.embed_dim = config.embed_dim,
          .mlp_dim = config.effective_mlp_dim(),
          .num_heads = config.num_heads,
          .num_key_value_heads = config.num_heads,
          .head_dim = config.embed_dim / config.num_heads,
          .norm_eps = config.layer_norm_eps,
          .is_post_norm = true,
          .is_causal = false,
          .has_fused_qkv = false,
          .dropout = config.dropout,
          .attention_dropout = config.attention_dropout,
          .activation_checkpointing = config.activation_checkpointing};
}

class Bert : public Model {
 public:
  Bert(const config::BertConfig& config, int64_t outputs)
      : config_(config), block_(block_settings(config)) {
    const int64_t width = config.embed_dim;
    const auto add_embedding = [&](const char* name, int64_t rows) {
      return register_module(name, torch::nn::Embedding(rows, width));
    };
    tok_ = register_module("tok", make_token_embedding(config.vocab_size, width, config.pad_token));
    pos_ = add_embedding("pos", config.context_length);
    type_ = add_embedding("type", config.num_token_types);
    embed_ln_ = register_module("embed_ln", std::make_shared<NormLayer>(block_, width));
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < config.num_layers; ++i)
      blocks_.push_back(
          list->register_module(std::to_string(i), std::make_shared<TransformerBlock>(block_)));
    if (config.pooling == config::BertPooling::kPooler)
      pooler_ = register_module("pooler", make_linear(width, width, true));
    fc_ = register_module("fc", make_linear(width, outputs, true));
    initialize();
  }

  at::Tensor forward(const at::Tensor& input) override { return run(input, {}); }
  at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& length) override {
    return run(input, length);
  }

  int64_t context() const override { return config_.context_length; }
  int64_t vocab() const override { return config_.vocab_size; }
  std::string output_layer() const override { return "fc"; }

 private:
  // `length` undefined: no padding.
  at::Tensor run(const at::Tensor& tokens, const at::Tensor& length) {
    TORCH_CHECK(tokens.dim() == 2 && tokens.size(1) <= config_.context_length, "bert: input is ",
                tokens.sizes(), ", the maximum is ", config_.context_length, " tokens per sample");
    at::Tensor valid;  // [batch, time]
    BlockContext context;
    if (length.defined()) {
      // The softmax needs a token to attend to, also in an empty sequence.
      valid = at::arange(tokens.size(1), length.options()).lt(length.clamp_min(1).unsqueeze(1));
      context.mask = valid.unsqueeze(1).unsqueeze(1);
    }
    at::Tensor x = embed(tokens);
    for (const auto& block : blocks_)
      x = block->forward_checkpointed(x, context, adapter_dropout());
    return linear(fc_, drop(pool(x, valid)));
  }

  at::Tensor embed(const at::Tensor& tokens) {
    const at::Tensor positions = pos_->weight.narrow(0, 0, tokens.size(1));
    return drop(embed_ln_->forward(tok_(tokens) + embed_types(tokens) + positions));
  }

  at::Tensor embed_types(const at::Tensor& tokens) {
    if (!config_.sep_token) return type_->weight.narrow(0, 0, 1);
    const at::Tensor ends = tokens.eq(*config_.sep_token).to(at::kLong);
    return type_((ends.cumsum(1) - ends).clamp_max(config_.num_token_types - 1));
  }

  at::Tensor pool(const at::Tensor& x, const at::Tensor& valid) {
    switch (config_.pooling) {
      case config::BertPooling::kPooler:
        return at::tanh(linear(pooler_, x.select(1, 0)));
      case config::BertPooling::kMean: {
        if (!valid.defined()) return x.mean(1);
        const at::Tensor weights = valid.unsqueeze(2).to(x.scalar_type());
        return (x * weights).sum(1) / weights.sum(1);
      }
      case config::BertPooling::kNone:
        break;
    }
    return x;
  }

  at::Tensor drop(const at::Tensor& x) const { return drop_out(x, config_.dropout, is_training()); }

  // As transformers does.
  void initialize() {
    for (auto& item : named_parameters()) {
      if (item.value().dim() == 2)
        torch::nn::init::normal_(item.value(), 0.0, 0.02);
      else if (item.key().ends_with("bias"))
        torch::nn::init::zeros_(item.value());
    }
    zero_pad_token(tok_);
  }

  const config::BertConfig config_;
  const BlockSettings block_;
  torch::nn::Embedding tok_{nullptr}, pos_{nullptr}, type_{nullptr};
  NormPtr embed_ln_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  torch::nn::Linear pooler_{nullptr}, fc_{nullptr};
};

Status check_sizes(const config::BertConfig& config) {
  if (config.num_layers < 1 || config.num_heads < 1 || config.embed_dim < 1 ||
      config.effective_mlp_dim() < 1 || config.context_length < 1 || config.vocab_size < 1 ||
      config.num_token_types < 1 || config.embed_dim % config.num_heads != 0)
    return Status(StatusCode::kInvalidArgument,
                  "model bert: num_layers, num_heads, mlp_dim, context_length, vocab_size and "
                  "num_token_types must be at least 1, and embed_dim (" +
                      std::to_string(config.embed_dim) + ") a multiple of num_heads (" +
                      std::to_string(config.num_heads) + ")");
  return {};
}

Status check_tokens(const config::BertConfig& config, const Samples& sample) {
  const TensorSpec* const tokens = find_tensor(sample, TensorRole::kTokens);
  if (tokens == nullptr || tokens->shape.size() != 1 || tokens->elements() == 0)
    return Status(
        StatusCode::kMismatch,
        "model bert needs sequences of tokens, `tokens` [steps]; the data has " + describe(sample));
  if (tokens->shape[0] > config.context_length)
    return Status(StatusCode::kMismatch, "model.context_length is " +
                                             std::to_string(config.context_length) +
                                             ", but the data has " + to_string(*tokens) +
                                             "; set sequence.max_length to at most that");
  return {};
}

}  // namespace

Result<ModelPtr> make_bert(const config::BertConfig& config, std::optional<int64_t> num_classes,
                           const Samples& sample, uint64_t classes) {
  STOKER_RETURN_IF_ERROR(check_sizes(config));
  STOKER_RETURN_IF_ERROR(check_tokens(config, sample));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(std::make_shared<Bert>(config, outputs));
}

}  // namespace stoker::model
