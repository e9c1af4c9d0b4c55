#include "tests/parity/image_cases.h"

#include "tests/parity/case_parts.h"

namespace stoker::parity {
namespace {

ParityCase lenet_adam_step() {
  return {
      .name = "lenet_adam_step",
      .model = {.arch = config::Lenet5Config{}},
      .task = {config::ClassificationTask{}},
      .optimizer = {.method =
                        config::AdamConfig{
                            .lr = 2e-3, .betas = {0.9, 0.999}, .eps = 1e-6, .weight_decay = 0.01}},
      .schedule = kHalved,
      .sample = labeled(DType::kU8, {1, 12, 12}),
      .classes = 7};
}

ParityCase resnet8_sgd_constant() {
  return {.name = "resnet8_sgd_constant",
          .model = resnet(8),
          .task = {config::ClassificationTask{}},
          .optimizer = {.method = config::SgdConfig{.lr = 0.05}},
          .train = {.max_grad_norm = 0.25},
          .schedule = kConstant,
          .sample = labeled(DType::kU8, {3, 16, 16}),
          .classes = 4};
}

ParityCase alexnet_sgd_momentum_constant() {
  return {.name = "alexnet_sgd_momentum_constant",
          .model = alexnet(24, 0.0),
          .task = {config::ClassificationTask{}},
          .optimizer = plain_sgd(0.9),
          .schedule = kConstant,
          .sample = labeled(DType::kU8, {1, 63, 63}),
          .classes = 4,
          .num_stored = 48};
}

ParityCase vgg11_bn_sgd_constant() {
  return {.name = "vgg11_bn_sgd_constant",
          .model = vgg(11, true, 24, 0.0),
          .task = {config::ClassificationTask{}},
          .optimizer = plain_sgd(0.0),
          .schedule = kConstant,
          .sample = labeled(DType::kU8, {1, 32, 32}),
          .classes = 3,
          .num_stored = 48};
}

ParityCase vit_sgd_momentum_constant() {
  return {.name = "vit_sgd_momentum_constant",
          .model = vit(2, 4, 32, 4, /*mlp_dim=*/48),
          .task = {config::ClassificationTask{}},
          .optimizer = plain_sgd(0.9),
          .schedule = kConstant,
          .sample = labeled(DType::kU8, {3, 16, 16}),
          .classes = 4,
          .num_stored = 48};
}

ParityCase sequential_adam_constant() {
  using config::Conv2dLayer;
  const config::ReluLayer relu{};
  const config::BatchNormLayer norm{};
  const std::vector<config::Layer> body = {
      Conv2dLayer{.out_channels = 12, .kernel_size = 3, .stride = 2, .padding = 1, .groups = 2},
      norm, config::GeluLayer{}, Conv2dLayer{.out_channels = 12, .kernel_size = 3, .padding = 1}};
  const std::vector<config::Layer> shortcut = {config::AvgPool2dLayer{.kernel_size = 2},
                                               Conv2dLayer{.out_channels = 12, .kernel_size = 1}};
  return {
      .name = "sequential_adam_constant",
      .model = layers(
          {Conv2dLayer{.out_channels = 8, .kernel_size = 3, .padding = 1, .bias = false}, norm,
           relu, config::MaxPool2dLayer{.kernel_size = 3, .stride = 2, .padding = 1},
           config::ResidualLayer{.body = body, .shortcut = shortcut},
           config::ResidualLayer{.body = {relu, norm}, .shortcut = {}},
           config::AdaptiveAvgPool2dLayer{.output_size = 2}, config::FlattenLayer{},
           config::LinearLayer{.out_features = 16}, config::LayerNormLayer{}, config::TanhLayer{},
           config::DropoutLayer{.p = 0.0}, config::LinearLayer{.bias = false}}),
      .task = {config::ClassificationTask{}},
      .optimizer = {.method = config::AdamConfig{.lr = 2e-3, .betas = {0.9, 0.999}, .eps = 1e-3}},
      .schedule = kConstant,
      .sample = labeled(DType::kU8, {2, 16, 16}),
      .classes = 3,
      .num_stored = 48};
}

}  // namespace

std::vector<ParityCase> image_cases() {
  std::vector<ParityCase> cases{
      lenet_adam_step(),       resnet8_sgd_constant(),      alexnet_sgd_momentum_constant(),
      vgg11_bn_sgd_constant(), vit_sgd_momentum_constant(), sequential_adam_constant()};
  for (ParityCase& each : cases) each.normalize = config::Normalize{.mean = {0.5}, .std = {0.5}};
  return cases;
}

}  // namespace stoker::parity
