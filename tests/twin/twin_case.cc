#include "tests/twin/twin_case.h"

#include <algorithm>
#include <iterator>

#include "tests/twin/sequence_cases.h"
#include "tests/twin/update_cases.h"

namespace stoker::twin {
namespace {

std::vector<TensorSpec> tokens(int64_t length) { return {{"tokens", DType::kU8, {length}}}; }

std::vector<TensorSpec> labelled(DType dtype, std::vector<int64_t> shape) {
  return {{"input", dtype, std::move(shape)}, {"label", DType::kI64, {}}};
}

config::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t context,
                        int64_t vocab) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kGpt;
  model.layers = layers;
  model.width = width;
  model.heads = heads;
  model.context = context;
  model.vocab = vocab;
  return model;
}

config::ModelConfig mlp(std::vector<int64_t> hidden, double dropout) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kMlp;
  model.hidden = std::move(hidden);
  model.dropout = dropout;
  return model;
}

config::ModelConfig resnet(int64_t depth) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kResnet;
  model.layers = depth;
  return model;
}

TwinCase gpt_adamw_cosine() {
  return {.name = "gpt_adamw_cosine",
          .model = gpt(2, 16, 2, 8, 64),
          .task = {config::TaskKind::kLanguageModel},
          .optimizer = {.kind = config::OptimizerKind::kAdamW,
                        .lr = 3e-3,
                        .betas = {0.9, 0.95},
                        .eps = 1e-6,
                        .weight_decay = 0.1,
                        .clip_norm = 0.5},
          .schedule = {.kind = config::ScheduleKind::kCosine, .warmup_steps = 3, .min_lr = 3e-4},
          .sample = tokens(9),
          .classes = 64};
}

TwinCase mlp_momentum_linear() {
  return {.name = "mlp_momentum_linear",
          .model = mlp({16, 8}, 0.0),
          .task = {config::TaskKind::kRegression},
          .optimizer = {.kind = config::OptimizerKind::kMomentum,
                        .lr = 0.05,
                        .momentum = 0.9,
                        .nesterov = true,
                        .weight_decay = 0.01,
                        .clip_norm = 0.0},
          .schedule = {.kind = config::ScheduleKind::kLinear, .warmup_steps = 2, .min_lr = 0.005},
          .sample = {{"input", DType::kF32, {10}}, {"target", DType::kF32, {2}}},
          .classes = 0};
}

TwinCase lenet_adam_step() {
  config::ModelConfig lenet;
  lenet.kind = config::ModelKind::kLenet;
  return {.name = "lenet_adam_step",
          .model = lenet,
          .task = {config::TaskKind::kClassification},
          .optimizer = {.kind = config::OptimizerKind::kAdam,
                        .lr = 2e-3,
                        .betas = {0.9, 0.999},
                        .eps = 1e-6,
                        .weight_decay = 0.01,
                        .clip_norm = 1.0},
          .schedule = {.kind = config::ScheduleKind::kStep,
                       .warmup_steps = 0,
                       .every_steps = 4,
                       .factor = 0.5},
          .sample = labelled(DType::kU8, {1, 12, 12}),
          .classes = 7};
}

TwinCase resnet8_sgd_constant() {
  return {.name = "resnet8_sgd_constant",
          .model = resnet(8),
          .task = {config::TaskKind::kClassification},
          .optimizer = {.kind = config::OptimizerKind::kSgd,
                        .lr = 0.05,
                        .weight_decay = 0.0,
                        .clip_norm = 0.25},
          .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
          .sample = labelled(DType::kU8, {3, 16, 16}),
          .classes = 4};
}

config::ModelConfig alexnet(int64_t width, double dropout) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kAlexnet;
  model.width = width;
  model.dropout = dropout;
  return model;
}

config::ModelConfig vgg(int64_t depth, bool batch_norm, int64_t width, double dropout) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kVgg;
  model.layers = depth;
  model.batch_norm = batch_norm;
  model.width = width;
  model.dropout = dropout;
  return model;
}

config::OptimizerConfig plain_sgd(double momentum) {
  return {.kind = momentum > 0 ? config::OptimizerKind::kMomentum : config::OptimizerKind::kSgd,
          .lr = 0.02,
          .momentum = momentum,
          .weight_decay = 0.0,
          .clip_norm = 1.0};
}

TwinCase alexnet_momentum_constant() {
  return {.name = "alexnet_momentum_constant",
          .model = alexnet(24, 0.0),
          .task = {config::TaskKind::kClassification},
          .optimizer = plain_sgd(0.9),
          .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
          .sample = labelled(DType::kU8, {1, 63, 63}),
          .classes = 4,
          .kept = 48};
}

TwinCase vgg11_bn_sgd_constant() {
  return {.name = "vgg11_bn_sgd_constant",
          .model = vgg(11, true, 24, 0.0),
          .task = {config::TaskKind::kClassification},
          .optimizer = plain_sgd(0.0),
          .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
          .sample = labelled(DType::kU8, {1, 32, 32}),
          .classes = 3,
          .kept = 48,
          .nothing = 1e-7};
}

config::ModelConfig layers(std::vector<config::LayerConfig> stack) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kLayers;
  model.stack = std::move(stack);
  return model;
}

TwinCase layers_adam_constant() {
  const config::LayerConfig relu{.kind = "relu"}, norm{.kind = "batch_norm"};
  const std::vector<config::LayerConfig> body = {
      {.kind = "conv", .channels = 12, .kernel = 3, .stride = 2, .padding = 1, .groups = 2},
      norm,
      {.kind = "gelu"},
      {.kind = "conv", .channels = 12, .kernel = 3, .padding = 1}};
  return {
      .name = "layers_adam_constant",
      .model = layers({{.kind = "conv", .channels = 8, .kernel = 3, .padding = 1, .bias = false},
                       norm,
                       relu,
                       {.kind = "max_pool", .kernel = 3, .stride = 2, .padding = 1},
                       {.kind = "residual",
                        .body = body,
                        .shortcut = {{.kind = "avg_pool", .kernel = 2},
                                     {.kind = "conv", .channels = 12, .kernel = 1}}},
                       {.kind = "residual", .body = {relu, norm}},
                       {.kind = "adaptive_avg_pool", .size = 2},
                       {.kind = "flatten"},
                       {.kind = "linear", .outputs = 16},
                       {.kind = "layer_norm"},
                       {.kind = "tanh"},
                       {.kind = "dropout", .part = 0.0},
                       {.kind = "linear", .bias = false}}),
      .task = {config::TaskKind::kClassification},
      .optimizer = {.kind = config::OptimizerKind::kAdam,
                    .lr = 2e-3,
                    .betas = {0.9, 0.999},
                    .eps = 1e-5,
                    .weight_decay = 0.0,
                    .clip_norm = 1.0},
      .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
      .sample = labelled(DType::kU8, {2, 16, 16}),
      .classes = 3,
      .kept = 48,
      .nothing = 1e-7};
}

TwinCase layers_lstm_momentum() {
  return {.name = "layers_lstm_momentum",
          .model = layers({{.kind = "embedding", .vocab = 64, .width = 12},
                           {.kind = "lstm", .width = 16},
                           {.kind = "linear"}}),
          .task = {config::TaskKind::kLanguageModel},
          .optimizer = plain_sgd(0.9),
          .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
          .sample = tokens(9),
          .classes = 64,
          .kept = 48};
}

config::ModelConfig vit(int64_t layers, int64_t heads, int64_t width, int64_t patch_size) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kVit;
  model.layers = layers;
  model.heads = heads;
  model.width = width;
  model.patch_size = patch_size;
  return model;
}

TwinCase vit_momentum_constant() {
  config::ModelConfig model = vit(2, 4, 32, 4);
  model.mlp_width = 48;
  return {.name = "vit_momentum_constant",
          .model = model,
          .task = {config::TaskKind::kClassification},
          .optimizer = plain_sgd(0.9),
          .schedule = {.kind = config::ScheduleKind::kConstant, .warmup_steps = 0},
          .sample = labelled(DType::kU8, {3, 16, 16}),
          .classes = 4,
          .kept = 48};
}

config::ModelConfig inception(bool aux_logits, double dropout) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kInceptionV3;
  model.aux_logits = aux_logits;
  model.dropout = dropout;
  return model;
}

TwinCase mlp_adamw_groups() {
  return {.name = "mlp_adamw_groups",
          .model = mlp({16, 8}, 0.0),
          .task = {config::TaskKind::kRegression},
          .optimizer = {.kind = config::OptimizerKind::kAdamW,
                        .lr = 2e-3,
                        .betas = {0.9, 0.99},
                        .eps = 1e-6,
                        .weight_decay = 0.1,
                        .clip_norm = 0.5,
                        .groups = {{.match = "*.bias", .weight_decay = 0.0},
                                   {.match = "0.*", .lr_scale = 0.1, .weight_decay = 0.3}}},
          .schedule = {.kind = config::ScheduleKind::kStep,
                       .warmup_steps = 0,
                       .every_steps = 4,
                       .factor = 0.5},
          .sample = {{"input", DType::kF32, {10}}, {"target", DType::kF32, {2}}},
          .classes = 0};
}

}  // namespace

std::vector<TwinCase> trained_cases() {
  std::vector<TwinCase> cases = {gpt_adamw_cosine(),      mlp_momentum_linear(),
                                 lenet_adam_step(),       resnet8_sgd_constant(),
                                 mlp_adamw_groups(),      alexnet_momentum_constant(),
                                 vgg11_bn_sgd_constant(), vit_momentum_constant(),
                                 layers_adam_constant(),  layers_lstm_momentum()};
  std::ranges::move(update_cases(), std::back_inserter(cases));
  std::ranges::move(trained_sequence_cases(), std::back_inserter(cases));
  return cases;
}

std::vector<TwinCase> published_cases() {
  std::vector<TwinCase> cases;
  const auto add = [&cases](const std::string& name, const config::ModelConfig& model) {
    cases.push_back({.name = name,
                     .model = model,
                     .sample = labelled(DType::kU8, {3, 224, 224}),
                     .classes = 1000});
  };
  for (const int64_t depth : {18, 34, 50, 101, 152})
    add("resnet" + std::to_string(depth), resnet(depth));
  add("alexnet", alexnet(4096, 0.5));
  add("vit_b_16", vit(12, 12, 768, 16));
  add("vit_b_32", vit(12, 12, 768, 32));
  for (const int64_t depth : {11, 13, 16, 19}) {
    add("vgg" + std::to_string(depth), vgg(depth, false, 4096, 0.5));
    add("vgg" + std::to_string(depth) + "_bn", vgg(depth, true, 4096, 0.5));
  }
  add("inception_v3", inception(true, 0.5));
  cases.back().sample = labelled(DType::kU8, {3, 299, 299});
  return cases;
}

std::vector<TwinCase> initial_cases() {
  const auto picture = [](int64_t channels) { return labelled(DType::kU8, {channels, 64, 64}); };
  std::vector<TwinCase> cases = {
      {.name = "resnet18",
       .model = resnet(18),
       .sample = labelled(DType::kU8, {3, 64, 64}),
       .classes = 10},
      {.name = "resnet20",
       .model = resnet(20),
       .sample = labelled(DType::kU8, {3, 32, 32}),
       .classes = 10},
      {.name = "resnet50",
       .model = resnet(50),
       .sample = labelled(DType::kU8, {1, 64, 64}),
       .classes = 5},
      {.name = "resnet101", .model = resnet(101), .sample = picture(3), .classes = 5},
      {.name = "resnet152", .model = resnet(152), .sample = picture(3), .classes = 5},
      {.name = "alexnet", .model = alexnet(4096, 0.5), .sample = picture(3), .classes = 10},
      {.name = "vgg11", .model = vgg(11, false, 4096, 0.5), .sample = picture(3), .classes = 10},
      {.name = "vgg13_bn", .model = vgg(13, true, 8, 0.5), .sample = picture(3), .classes = 5},
      {.name = "vgg16", .model = vgg(16, false, 8, 0.5), .sample = picture(1), .classes = 5},
      {.name = "vgg19_bn", .model = vgg(19, true, 8, 0.5), .sample = picture(3), .classes = 5},
      {.name = "vit_b_32", .model = vit(12, 12, 768, 32), .sample = picture(3), .classes = 5},
      {.name = "inception_v3",
       .model = inception(true, 0.5),
       .sample = labelled(DType::kU8, {3, 299, 299}),
       .classes = 5},
      {.name = "mlp_dropout",
       .model = mlp({7, 5}, 0.1),
       .sample = labelled(DType::kF32, {12}),
       .classes = 3},
      {.name = "gpt", .model = gpt(3, 24, 3, 16, 256), .sample = tokens(17), .classes = 256},
  };
  std::ranges::move(initial_sequence_cases(), std::back_inserter(cases));
  return cases;
}

}  // namespace stoker::twin
