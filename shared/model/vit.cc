// vit: torchvision's VisionTransformer: an image divided into patches, preceded by a class token,
// with learned position embeddings, pre-norm blocks and exact GELU.
#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "shared/model/attention.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/image_model.h"
#include "shared/model/lora.h"
#include "shared/model/model_factories.h"
#include "shared/model/sequential.h"
#include "shared/model/trunc_normal.h"

namespace stoker::model {
namespace {

struct VitShape {
  int64_t layers, heads, width, mlp_width;
  double norm_eps, dropout;
};

torch::nn::LayerNorm layer_norm(const VitShape& shape) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({shape.width}).eps(shape.norm_eps));
}

VitShape shape_of(const config::VitConfig& config) {
  return {config.num_layers,          config.num_heads,      config.hidden_dim,
          config.effective_mlp_dim(), config.layer_norm_eps, config.dropout};
}

// As nn.MultiheadAttention(batch_first=True) for self-attention: same parameter names, same random
// numbers.
class SelfAttention : public torch::nn::Module, public AdaptableProjection {
 public:
  SelfAttention(int64_t width, int64_t heads)
      : heads_(heads),
        weight_(register_parameter("in_proj_weight", at::empty({3 * width, width}))),
        bias_(register_parameter("in_proj_bias", at::zeros({3 * width}))),
        out_(register_module("out_proj", torch::nn::Linear(width, width))) {
    torch::nn::init::xavier_uniform_(weight_);
    torch::nn::init::zeros_(out_->bias);
  }

  at::Tensor forward(const at::Tensor& x) {
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    const std::vector<at::Tensor> qkv =
        split_heads(add_adapter(*this, x, at::linear(x, weight_, bias_)), heads_);
    const at::Tensor attended = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    const at::Tensor merged = attended.transpose(1, 2).reshape({batch, time, width});
    return add_adapter(*out_, merged, out_(merged));
  }
  at::Tensor projection() const override { return weight_; }

 private:
  const int64_t heads_;
  at::Tensor weight_, bias_;
  torch::nn::Linear out_;
};

void add_linear(Sequential& sequential, torch::nn::Linear layer) {
  sequential.add(layer,
                 [layer](const at::Tensor& x) mutable { return add_adapter(*layer, x, layer(x)); });
}

std::shared_ptr<Sequential> make_mlp_block(const VitShape& shape) {
  const torch::nn::Linear up(shape.width, shape.mlp_width), down(shape.mlp_width, shape.width);
  for (const auto& linear : {up, down}) {
    torch::nn::init::xavier_uniform_(linear->weight);
    torch::nn::init::normal_(linear->bias, 0, 1e-6);
  }
  const auto sequential = std::make_shared<Sequential>();
  add_linear(*sequential, up);
  sequential->add_step([](const at::Tensor& x) { return at::gelu(x); });
  sequential->add_dropout(shape.dropout);
  add_linear(*sequential, down);
  sequential->add_dropout(shape.dropout);
  return sequential;
}

class EncoderBlock : public torch::nn::Module {
 public:
  explicit EncoderBlock(const VitShape& shape)
      : dropout_(shape.dropout),
        ln_1_(register_module("ln_1", layer_norm(shape))),
        attention_(register_module("self_attention",
                                   std::make_shared<SelfAttention>(shape.width, shape.heads))),
        ln_2_(register_module("ln_2", layer_norm(shape))),
        mlp_(register_module("mlp", make_mlp_block(shape))) {}

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor attended = attention_->forward(ln_1_(input));
    if (dropout_ > 0 && is_training()) attended = at::dropout(attended, dropout_, true);
    const at::Tensor x = input + attended;
    return x + mlp_->forward(ln_2_(x));
  }

 private:
  const double dropout_;
  torch::nn::LayerNorm ln_1_;
  std::shared_ptr<SelfAttention> attention_;
  torch::nn::LayerNorm ln_2_;
  std::shared_ptr<Sequential> mlp_;
};

class Encoder : public torch::nn::Module {
 public:
  Encoder(const VitShape& shape, int64_t length)
      : dropout_(shape.dropout),
        positions_(register_parameter("pos_embedding",
                                      at::empty({1, length, shape.width}).normal_(0, 0.02))) {
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < shape.layers; ++i)
      blocks_.push_back(layers->register_module("encoder_layer_" + std::to_string(i),
                                                std::make_shared<EncoderBlock>(shape)));
    ln_ = register_module("ln", layer_norm(shape));
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = input + positions_;
    if (dropout_ > 0 && is_training()) x = at::dropout(x, dropout_, true);
    for (const auto& block : blocks_) x = block->forward(x);
    return ln_(x);
  }

 private:
  const double dropout_;
  at::Tensor positions_;
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
  torch::nn::LayerNorm ln_{nullptr};
};

class Vit : public ImageModel {
 public:
  // `outputs` 0: without a head.
  Vit(const VitShape& shape, int64_t channels, int64_t side, int64_t patch, int64_t outputs) {
    // torchvision creates the patch projection first and the class token second, but the parameters
    // of a module precede those of its children in registration order.
    conv_proj_ =
        torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, shape.width, patch).stride(patch));
    token_ = register_parameter("class_token", at::zeros({1, 1, shape.width}));
    register_module("conv_proj", conv_proj_);
    const int64_t patches = (side / patch) * (side / patch);
    encoder_ = register_module("encoder", std::make_shared<Encoder>(shape, patches + 1));
    if (outputs > 0) {
      const auto heads = register_module("heads", std::make_shared<torch::nn::Module>());
      head_ = heads->register_module("head", torch::nn::Linear(shape.width, outputs));
    }
    const auto inputs = static_cast<double>(channels * patch * patch);
    trunc_normal_(conv_proj_->weight, std::sqrt(1 / inputs));
    torch::nn::init::zeros_(conv_proj_->bias);
    if (outputs == 0) return;
    for (const at::Tensor& zero : {head_->weight, head_->bias}) torch::nn::init::zeros_(zero);
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor token = pooled(features(input));
    return add_adapter(*head_, token, head_(token));
  }
  std::string output_layer() const override { return "heads.head"; }
  at::Tensor features(const at::Tensor& images) override {
    const at::Tensor patches = conv_proj_(images).flatten(2).transpose(1, 2);
    return encoder_->forward(at::cat({token_.expand({images.size(0), -1, -1}), patches}, 1));
  }
  at::Tensor pooled(const at::Tensor& features) override { return features.select(1, 0); }

 private:
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
  return ModelPtr(std::make_shared<Vit>(shape_of(config), input.shape[0], input.shape[1],
                                        config.patch_size, outputs));
}

Result<ImageModelPtr> make_vit_encoder(const config::VitConfig& config, const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, model_name(config), config.patch_size));
  STOKER_RETURN_IF_ERROR(check_image(input, config));
  return ImageModelPtr(std::make_shared<Vit>(shape_of(config), input.shape[0], input.shape[1],
                                             config.patch_size, /*outputs=*/0));
}

}  // namespace stoker::model
