// resnet: torchvision's 18, 34, 50, 101 and 152 for ImageNet, and the CIFAR family of the same
// paper (8, 14, 20, 32, 44, 56: a 3 x 3 stem, three stages of 16, 32, 64 channels, projection
// shortcuts).
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/config/image_model_config.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/image_model.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

torch::nn::Conv2d conv(int64_t from, int64_t to, int64_t kernel, int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(from, to, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// The 1 x 1 projection of a shortcut: the children "0" and "1" of "downsample".
class Projection : public torch::nn::Module {
 public:
  Projection(int64_t from, int64_t to, int64_t stride)
      : conv_(register_module("0", conv(from, to, 1, stride))),
        bn_(register_module("1", torch::nn::BatchNorm2d(to))) {}
  at::Tensor forward(const at::Tensor& x) { return bn_(conv_(x)); }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d bn_;
};

struct BlockShape {
  int64_t from, width, stride;
  int64_t expansion;  // 1: basic block; 4: bottleneck
  int64_t to() const { return width * expansion; }
};

// Two 3 x 3 convolutions, or 1 x 1, 3 x 3, 1 x 1 (the stride is on the 3 x 3, as in torchvision).
class ResnetBlock : public torch::nn::Module {
 public:
  explicit ResnetBlock(const BlockShape& shape) {
    // torchvision creates the projection before the block but registers it last; the order of
    // creation decides which random numbers initialize each weight.
    std::shared_ptr<Projection> projection;
    if (shape.stride != 1 || shape.from != shape.to())
      projection = std::make_shared<Projection>(shape.from, shape.to(), shape.stride);
    if (shape.expansion == 1) {
      add(shape.from, shape.width, 3, shape.stride);
      add(shape.width, shape.width, 3, 1);
    } else {
      add(shape.from, shape.width, 1, 1);
      add(shape.width, shape.width, 3, shape.stride);
      add(shape.width, shape.to(), 1, 1);
    }
    if (projection) downsample_ = register_module("downsample", projection);
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x;
    for (size_t i = 0; i + 1 < convs_.size(); ++i) y = norms_[i](convs_[i](y)).relu_();
    y = norms_.back()(convs_.back()(y));
    y += downsample_ ? downsample_->forward(x) : x;
    return y.relu_();
  }

 private:
  void add(int64_t from, int64_t to, int64_t kernel, int64_t stride) {
    const std::string number = std::to_string(convs_.size() + 1);
    convs_.push_back(register_module("conv" + number, conv(from, to, kernel, stride)));
    norms_.push_back(register_module("bn" + number, torch::nn::BatchNorm2d(to)));
  }

  std::vector<torch::nn::Conv2d> convs_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  std::shared_ptr<Projection> downsample_;
};

struct NetShape {
  bool imagenet = false;  // 7 x 7 stem of stride 2 and max pooling; otherwise a 3 x 3 stem
  int64_t first_width = 0;
  int64_t expansion = 1;
  std::vector<int64_t> blocks;  // per stage
};

Result<NetShape> shape_of_depth(int depth) {
  if (const config::ResnetLayout* const layout = config::find_resnet_layout(depth))
    return NetShape{true,
                    64,
                    layout->has_bottlenecks ? 4 : 1,
                    {std::begin(layout->blocks), std::end(layout->blocks)}};
  switch (depth) {
    case 8:
    case 14:
    case 20:
    case 32:
    case 44:
    case 56: {
      const int64_t blocks_per_stage = (depth - 2) / 6;
      return NetShape{false, 16, 1, {blocks_per_stage, blocks_per_stage, blocks_per_stage}};
    }
    default:
      return Status(StatusCode::kInvalidArgument,
                    "model.name: unknown model resnet" + std::to_string(depth) +
                        "; set it to resnet18, 34, 50, 101 or 152, or for small images to resnet8, "
                        "14, 20, 32, 44 or 56");
  }
}

class Resnet : public ImageModel {
 public:
  // `outputs` 0: without a head.
  Resnet(const NetShape& shape, int64_t channels, int64_t outputs) : imagenet_(shape.imagenet) {
    const int64_t first = shape.first_width;
    conv1_ = register_module("conv1", conv(channels, first, imagenet_ ? 7 : 3, imagenet_ ? 2 : 1));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(first));
    int64_t from = first, width = first;
    for (size_t stage = 0; stage < shape.blocks.size(); ++stage, width *= 2) {
      const auto layer = register_module("layer" + std::to_string(stage + 1),
                                         std::make_shared<torch::nn::Module>());
      for (int64_t i = 0; i < shape.blocks[stage]; ++i) {
        const BlockShape block{from, width, stage > 0 && i == 0 ? 2 : 1, shape.expansion};
        blocks_.push_back(
            layer->register_module(std::to_string(i), std::make_shared<ResnetBlock>(block)));
        from = block.to();
      }
    }
    if (outputs > 0) fc_ = register_module("fc", torch::nn::Linear(from, outputs));
    for (const auto& module : modules(/*include_self=*/false))
      if (auto* const convolution = module->as<torch::nn::Conv2dImpl>())
        torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  }

  at::Tensor forward(const at::Tensor& input) override {
    return fc_(at::adaptive_avg_pool2d(feature_map(input), {1, 1}).flatten(1));
  }
  at::Tensor features(const at::Tensor& images) override {
    return feature_map(images).flatten(2).transpose(1, 2);
  }

 private:
  at::Tensor feature_map(const at::Tensor& input) {
    at::Tensor x = bn1_(conv1_(input)).relu_();
    if (imagenet_) x = at::max_pool2d(x, 3, 2, 1);
    for (const auto& block : blocks_) x = block->forward(x);
    return x;
  }

  const bool imagenet_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<std::shared_ptr<ResnetBlock>> blocks_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

Result<ModelPtr> make_resnet(const config::ResnetConfig& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const NetShape shape, shape_of_depth(config.depth));
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, "resnet" + std::to_string(config.depth), 8));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(std::make_shared<Resnet>(shape, input.shape[0], outputs));
}

Result<ImageModelPtr> make_resnet_encoder(const config::ResnetConfig& config,
                                          const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const NetShape shape, shape_of_depth(config.depth));
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, "resnet" + std::to_string(config.depth), 8));
  return ImageModelPtr(std::make_shared<Resnet>(shape, input.shape[0], /*outputs=*/0));
}

}  // namespace stoker::model
