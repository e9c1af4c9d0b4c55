// vit: torchvision's VisionTransformer: an image divided into patches, preceded by a class token,
// with learned position embeddings, pre-norm blocks and exact GELU.
#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/image_model.h"
#include "shared/model/linear.h"
#include "shared/model/lora.h"
#include "shared/model/model_factories.h"
#include "shared/model/transformer_block.h"
#include "shared/model/trunc_normal.h"

namespace stoker::model {
namespace {

BlockSettings vit_block(const config::VitConfig& config) {
  return {.embed_dim = config.hidden_dim,
          .mlp_dim = config.effective_mlp_dim(),
          .num_heads = config.num_heads,
          .num_key_value_heads = config.num_heads,
          .head_dim = config.hidden_dim / config.num_heads,
          .norm_eps = config.layer_norm_eps,
          .is_causal = false,
          .dropout = config.dropout,
          .mlp_dropout = config.dropout,
          .activation_checkpointing = config.activation_checkpointing};
}

// The parameters of nn.MultiheadAttention for self-attention: same names, same random numbers.
class SelfAttention : public torch::nn::Module, public AdaptableProjection {
 public:
  explicit SelfAttention(int64_t width)
      : weight_(register_parameter("in_proj_weight", at::empty({3 * width, width}))),
        bias_(register_parameter("in_proj_bias", at::zeros({3 * width}))),
        out_(register_module("out_proj", torch::nn::Linear(width, width))) {
    torch::nn::init::xavier_uniform_(weight_);
    torch::nn::init::zeros_(out_->bias);
  }

  at::Tensor project_qkv(const at::Tensor& x) const {
    return add_adapter(*this, x, linear(x, weight_, bias_));
  }
  const torch::nn::Linear& out() const { return out_; }
  at::Tensor projection() const override { return weight_; }

 private:
  at::Tensor weight_, bias_;
  torch::nn::Linear out_;
};

// A block with torchvision's names and initial values.
class EncoderBlock : public TransformerBlock {
 public:
  explicit EncoderBlock(const BlockSettings& settings)
      : TransformerBlock(settings, WithoutLayers()) {
    const int64_t width = settings.embed_dim;
    ln1_ = register_module("ln_1", std::make_shared<NormLayer>(settings, width));
    attention_ = register_module("self_attention", std::make_shared<SelfAttention>(width));
    proj_ = attention_->out();
    ln2_ = register_module("ln_2", std::make_shared<NormLayer>(settings, width));
    up_ = torch::nn::Linear(width, settings.mlp_dim);
    down_ = torch::nn::Linear(settings.mlp_dim, width);
    for (const auto& layer : {up_, down_}) {
      torch::nn::init::xavier_uniform_(layer->weight);
      torch::nn::init::normal_(layer->bias, 0, 1e-6);
    }
    const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>());
    mlp->register_module("0", up_);
    mlp->register_module("3", down_);
  }

 private:
  at::Tensor project_qkv(const at::Tensor& x) override { return attention_->project_qkv(x); }

  std::shared_ptr<SelfAttention> attention_;
};

class Encoder : public torch::nn::Module {
 public:
  // `settings` must outlive it.
  Encoder(const BlockSettings& settings, int64_t num_layers, int64_t length)
      : settings_(settings),
        positions_(register_parameter(
            "pos_embedding", at::empty({1, length, settings.embed_dim}).normal_(0, 0.02))) {
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < num_layers; ++i)
      blocks_.push_back(layers->register_module("encoder_layer_" + std::to_string(i),
                                                std::make_shared<EncoderBlock>(settings)));
    ln_ = register_module("ln", std::make_shared<NormLayer>(settings, settings.embed_dim));
  }

  at::Tensor forward(const at::Tensor& input, double adapter_dropout) {
    at::Tensor x = drop_out(input + positions_, settings_.dropout, is_training());
    for (const auto& block : blocks_) x = block->forward_checkpointed(x, {}, adapter_dropout);
    return ln_->forward(x);
  }

 private:
  const BlockSettings& settings_;
  at::Tensor positions_;
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
  NormPtr ln_;
};

class Vit : public ImageModel {
 public:
  // `outputs` 0: without a head.
  Vit(const config::VitConfig& config, int64_t channels, int64_t side, int64_t outputs)
      : block_(vit_block(config)) {
    const int64_t width = block_.embed_dim, patch = config.patch_size;
    // torchvision creates the patch projection first and the class token second, but the parameters
    // of a module precede those of its children in registration order.
    conv_proj_ = torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, width, patch).stride(patch));
    token_ = register_parameter("class_token", at::zeros({1, 1, width}));
    register_module("conv_proj", conv_proj_);
    const int64_t patches = (side / patch) * (side / patch);
    encoder_ = register_module("encoder",
                               std::make_shared<Encoder>(block_, config.num_layers, patches + 1));
    if (outputs > 0) {
      const auto heads = register_module("heads", std::make_shared<torch::nn::Module>());
      head_ = heads->register_module("head", torch::nn::Linear(width, outputs));
    }
    const auto inputs = static_cast<double>(channels * patch * patch);
    trunc_normal_(conv_proj_->weight, std::sqrt(1 / inputs));
    torch::nn::init::zeros_(conv_proj_->bias);
    if (outputs == 0) return;
    for (const at::Tensor& zero : {head_->weight, head_->bias}) torch::nn::init::zeros_(zero);
  }

  at::Tensor forward(const at::Tensor& input) override {
    return linear(head_, pooled(features(input)));
  }
  std::string output_layer() const override { return "heads.head"; }
  at::Tensor features(const at::Tensor& images) override {
    const at::Tensor patches = conv_proj_(images).flatten(2).transpose(1, 2);
    return encoder_->forward(at::cat({token_.expand({images.size(0), -1, -1}), patches}, 1),
                             adapter_dropout());
  }
  at::Tensor pooled(const at::Tensor& features) override { return features.select(1, 0); }

 private:
  const BlockSettings block_;
  torch::nn::Conv2d conv_proj_{nullptr};
  at::Tensor token_;
  std::shared_ptr<Encoder> encoder_;
  torch::nn::Linear head_{nullptr};
};

std::string model_name(const config::VitConfig& config) {
  return config.preset.empty() ? "vit" : "vit_" + config.preset;
}

Status check_image(const TensorSpec& input, const config::VitConfig& config) {
  const int64_t side = input.shape[1];
  if (side != input.shape[2] || (config.image_size && side != *config.image_size)) {
    const std::string expected =
        !config.image_size ? "square images"
                           : "images of model.image_size, " + std::to_string(*config.image_size) +
                                 " x " + std::to_string(*config.image_size);
    return Status(StatusCode::kMismatch, "model " + model_name(config) + " needs " + expected +
                                             "; the data has " + to_string(input));
  }
  if (side % config.patch_size != 0)
    return Status(StatusCode::kMismatch,
                  "model.patch_size is " + std::to_string(config.patch_size) +
                      ", which does not divide the side of the data's images, " + to_string(input));
  return {};
}

}  // namespace

Result<ModelPtr> make_vit(const config::VitConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes) {
  if (config.num_layers < 1 || config.num_heads < 1 || config.hidden_dim % config.num_heads != 0 ||
      config.patch_size < 1) {
    return Status(
        StatusCode::kInvalidArgument,
        "model vit: num_layers, num_heads and patch_size must be at least 1 and hidden_dim (" +
            std::to_string(config.hidden_dim) + ") a multiple of num_heads (" +
            std::to_string(config.num_heads) + ")");
  }
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, model_name(config), config.patch_size));
  STOKER_RETURN_IF_ERROR(check_image(input, config));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(std::make_shared<Vit>(config, input.shape[0], input.shape[1], outputs));
}

Result<ImageModelPtr> make_vit_encoder(const config::VitConfig& config, const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, model_name(config), config.patch_size));
  STOKER_RETURN_IF_ERROR(check_image(input, config));
  return ImageModelPtr(
      std::make_shared<Vit>(config, input.shape[0], input.shape[1], /*outputs=*/0));
}

}  // namespace stoker::model
