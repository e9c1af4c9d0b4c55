// vgg: torchvision's networks with 11, 13, 16 and 19 layers, with or without batch normalization.
#include <array>

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/conv_classifier.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

constexpr int64_t kVggMinSide = 32;  // five poolings, each by 2
constexpr int64_t kVggPooledSide = 7;

using NumConvolutions = std::array<int64_t, 5>;  // per stage

Result<NumConvolutions> num_convolutions_of_depth(int depth) {
  switch (depth) {
    case 11:
      return NumConvolutions{1, 1, 2, 2, 2};
    case 13:
      return NumConvolutions{2, 2, 2, 2, 2};
    case 16:
      return NumConvolutions{2, 2, 3, 3, 3};
    case 19:
      return NumConvolutions{2, 2, 4, 4, 4};
    default:
      return Status(StatusCode::kInvalidArgument, "model.name: unknown model vgg" +
                                                      std::to_string(depth) +
                                                      "; set it to vgg11, vgg13, vgg16 or vgg19");
  }
}

std::shared_ptr<Sequential> make_vgg_features(const NumConvolutions& num_convolutions,
                                              int64_t channels, bool batch_norm) {
  constexpr std::array<int64_t, 5> kWidths{64, 128, 256, 512, 512};
  const auto sequential = std::make_shared<Sequential>();
  int64_t from = channels;
  for (size_t stage = 0; stage < kWidths.size(); ++stage) {
    const int64_t to = kWidths[stage];
    for (int64_t i = 0; i < num_convolutions[stage]; ++i) {
      sequential->add(torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1)));
      if (batch_norm) sequential->add(torch::nn::BatchNorm2d(to));
      sequential->add_step(relu_inplace);
      from = to;
    }
    sequential->add_step([](const at::Tensor& x) { return at::max_pool2d(x, 2); });
  }
  return sequential;
}

std::shared_ptr<Sequential> make_vgg_classifier(int64_t width, int64_t outputs, double dropout) {
  const auto sequential = std::make_shared<Sequential>();
  sequential->add(torch::nn::Linear(512 * kVggPooledSide * kVggPooledSide, width));
  sequential->add_step(relu_inplace);
  sequential->add_dropout(dropout);
  sequential->add(torch::nn::Linear(width, width));
  sequential->add_step(relu_inplace);
  sequential->add_dropout(dropout);
  sequential->add(torch::nn::Linear(width, outputs));
  return sequential;
}

void initialize(torch::nn::Module& net) {
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (const auto* const conv = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      torch::nn::init::zeros_(conv->bias);
    } else if (const auto* const linear = module->as<torch::nn::LinearImpl>()) {
      torch::nn::init::normal_(linear->weight, 0, 0.01);
      torch::nn::init::zeros_(linear->bias);
    }
  }
}

std::string model_name(const config::VggConfig& config) {
  return "vgg" + std::to_string(config.depth) + (config.batch_norm ? "_bn" : "");
}

}  // namespace

Result<ModelPtr> make_vgg(const config::VggConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const NumConvolutions num_convolutions,
                          num_convolutions_of_depth(config.depth));
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, model_name(config), kVggMinSide));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  // In this order, because it decides which random numbers initialize each weight.
  const auto features = make_vgg_features(num_convolutions, input.shape[0], config.batch_norm);
  const auto classifier = make_vgg_classifier(config.hidden_dim, outputs, config.dropout);
  const auto net = std::make_shared<ConvClassifier>(features, kVggPooledSide, classifier);
  initialize(*net);
  return ModelPtr(net);
}

}  // namespace stoker::model
