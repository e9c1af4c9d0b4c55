// gpt: a decoder-only transformer over tokens: learned position embeddings, pre-norm blocks, exact
// GELU, untied head without bias.
#include <cmath>

#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "shared/model/activation_checkpointing.h"
#include "shared/model/attention.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/linear.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

class GptBlock : public torch::nn::Module {
 public:
  GptBlock(int64_t width, int64_t heads, double dropout)
      : heads_(heads),
        dropout_(dropout),
        ln1_(register_module("ln1", norm(width))),
        qkv_(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        proj_(register_module("proj", torch::nn::Linear(width, width))),
        ln2_(register_module("ln2", norm(width))),
        up_(register_module("up", torch::nn::Linear(width, 4 * width))),
        down_(register_module("down", torch::nn::Linear(4 * width, width))) {}

  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + drop(linear(proj_, attend(ln1_(x))));
    return y + drop(linear(down_, at::gelu(linear(up_, ln2_(y)))));
  }

 private:
  at::Tensor attend(const at::Tensor& x) {
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> qkv = split_heads(linear(qkv_, x), heads_);
    const at::Tensor attended =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{},
                                         is_training() ? dropout_ : 0.0, /*is_causal=*/true);
    return attended.transpose(1, 2).reshape({batch, time, width});
  }

  at::Tensor drop(const at::Tensor& x) const {
    return dropout_ > 0 && is_training() ? at::dropout(x, dropout_, true) : x;
  }

  const int64_t heads_;
  const double dropout_;
  torch::nn::LayerNorm ln1_;
  torch::nn::Linear qkv_, proj_;
  torch::nn::LayerNorm ln2_;
  torch::nn::Linear up_, down_;
};

class Gpt : public Model {
 public:
  explicit Gpt(const config::GptConfig& config)
      : config_(config),
        tok_(register_module("tok", torch::nn::Embedding(*config.vocab_size, config.embed_dim))),
        pos_(
            register_module("pos", torch::nn::Embedding(config.context_length, config.embed_dim))) {
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < config.num_layers; ++i) {
      auto block = std::make_shared<GptBlock>(config.embed_dim, config.num_heads, config.dropout);
      blocks_.push_back(list->register_module(std::to_string(i), std::move(block)));
    }
    ln_ = register_module("ln", GptBlock::norm(config.embed_dim));
    head_ = register_module(
        "head", torch::nn::Linear(
                    torch::nn::LinearOptions(config.embed_dim, *config.vocab_size).bias(false)));
    initialize();
  }

  at::Tensor forward(const at::Tensor& input) override {
    TORCH_CHECK(input.dim() == 2 && input.size(1) <= config_.context_length, "gpt: input is ",
                input.sizes(), ", the maximum is ", config_.context_length, " tokens per sample");
    at::Tensor x = tok_(input) + pos_->weight.narrow(0, 0, input.size(1));
    if (config_.dropout > 0 && is_training()) x = at::dropout(x, config_.dropout, true);
    for (const auto& block : blocks_)
      x = config_.activation_checkpointing ? run_checkpointed(*block, x) : block->forward(x);
    return linear(head_, ln_(x));
  }

  int64_t context() const override { return config_.context_length; }
  int64_t vocab() const override { return *config_.vocab_size; }

 private:
  at::Tensor run_checkpointed(GptBlock& block, const at::Tensor& x) const {
    return checkpoint_activations(
        [&block](const at::Tensor& input) { return block.forward(input); }, x, block.parameters(),
        config_.dropout > 0 && is_training());
  }

  // As in GPT-2: N(0, 0.02). The standard deviation of the projections that add to the residual
  // stream is divided by the square root of their number.
  void initialize() {
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.num_layers));
    for (auto& item : named_parameters()) {
      const std::string& name = item.key();
      const bool is_residual = name.ends_with("proj.weight") || name.ends_with("down.weight");
      if (item.value().dim() == 2)
        torch::nn::init::normal_(item.value(), 0.0, is_residual ? residual : 0.02);
      else if (name.ends_with("bias"))
        torch::nn::init::zeros_(item.value());
    }
  }

  const config::GptConfig config_;
  torch::nn::Embedding tok_, pos_;
  std::vector<std::shared_ptr<GptBlock>> blocks_;
  torch::nn::LayerNorm ln_{nullptr};
  torch::nn::Linear head_{nullptr};
};

}  // namespace

Result<ModelPtr> make_gpt(const config::GptConfig& config, const Samples& sample,
                          uint64_t classes) {
  if (config.num_layers < 1 || config.embed_dim < 1 || config.num_heads < 1 ||
      config.embed_dim % config.num_heads != 0 || config.context_length < 1 ||
      config.vocab_size.value_or(0) < 1) {
    return Status(
        StatusCode::kInvalidArgument,
        "model gpt: num_layers, embed_dim, num_heads, context_length and vocab_size must be at "
        "least 1 and embed_dim (" +
            std::to_string(config.embed_dim) + ") a multiple of num_heads (" +
            std::to_string(config.num_heads) + ")");
  }
  STOKER_RETURN_IF_ERROR(
      validate_vocab({config.context_length, *config.vocab_size}, sample, classes, "gpt"));
  return ModelPtr(std::make_shared<Gpt>(config));
}

}  // namespace stoker::model
