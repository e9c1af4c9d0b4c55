#include "tests/parity/update_cases.h"

#include "tests/parity/case_parts.h"

namespace stoker::parity {
namespace {

std::vector<TensorSpec> with_target(int64_t width) {
  return {{"input", DType::kF32, {10}}, {"target", DType::kF32, {width}}};
}

ParityCase mlp_sgd_momentum_linear() {
  return {
      .name = "mlp_sgd_momentum_linear",
      .model = mlp({16, 8}, 0.0),
      .task = {config::RegressionTask{}},
      .optimizer = {.method =
                        config::SgdConfig{
                            .lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}},
      .train = kUnclipped,
      .schedule = {.schedule = config::LinearScheduler{.min_lr = 0.005}, .warmup_steps = 2},
      .sample = with_target(2)};
}

ParityCase mlp_adamw_groups() {
  return {.name = "mlp_adamw_groups",
          .model = mlp({16, 8}, 0.0),
          .task = {config::RegressionTask{}},
          .optimizer = {.method =
                            config::AdamWConfig{
                                .lr = 2e-3, .betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1},
                        .param_groups = {{.params = "*.bias", .weight_decay = 0.0},
                                         {.params = "0.*", .lr_scale = 0.1, .weight_decay = 0.3}}},
          .train = {.max_grad_norm = 0.5},
          .schedule = kHalved,
          .sample = with_target(2)};
}

ParityCase mlp_rmsprop_multilabel() {
  return {.name = "mlp_rmsprop_multilabel",
          .model = mlp({16, 8}, 0.0),
          .task = {config::MultilabelClassificationTask{}},
          .optimizer = {.method = config::RmspropConfig{.lr = 0.003,
                                                        .alpha = 0.9,
                                                        .eps = 1e-6,
                                                        .momentum = 0.8,
                                                        .weight_decay = 0.01}},
          .schedule = kHalved,
          .sample = with_target(3)};
}

ParityCase mlp_rmsprop_plain() {
  return {.name = "mlp_rmsprop_plain",
          .model = mlp({16, 8}, 0.0),
          .task = {config::RegressionTask{}},
          .optimizer = {.method = config::RmspropConfig{.lr = 0.003, .eps = 1e-6}},
          .train = kUnclipped,
          .schedule = kConstant,
          .sample = with_target(2)};
}

ParityCase mlp_adagrad_smoothed() {
  return {
      .name = "mlp_adagrad_smoothed",
      .model = mlp({16, 8}, 0.0),
      .task = {config::ClassificationTask{.label_smoothing = 0.1}},
      .optimizer = {.method = config::AdagradConfig{.lr = 0.02, .eps = 1e-6, .weight_decay = 0.01}},
      .train = kUnclipped,
      .schedule = kConstant,
      .sample = labeled(DType::kF32, {10}),
      .classes = 4};
}

const config::OptimizerConfig kFastSgd{.method = config::SgdConfig{.lr = 0.1}};

ParityCase mlp_sgd_weighted() {
  const config::ClassificationTask task{.label_smoothing = 0.1,
                                        .class_weights = {.values = {0.5, 2.0, 1.0, 0.25}}};
  return {.name = "mlp_sgd_weighted",
          .model = mlp({16, 8}, 0.0),
          .task = {task},
          .optimizer = kFastSgd,
          .train = kUnclipped,
          .schedule = kConstant,
          .sample = labeled(DType::kF32, {10}),
          .classes = 4};
}

ParityCase mlp_sgd_weighted_multilabel() {
  return {.name = "mlp_sgd_weighted_multilabel",
          .model = mlp({16, 8}, 0.0),
          .task = {config::MultilabelClassificationTask{.pos_weight = {3.0, 1.0, 0.5}}},
          .optimizer = kFastSgd,
          .train = kUnclipped,
          .schedule = kConstant,
          .sample = with_target(3)};
}

ParityCase mlp_adam_binary() {
  config::ModelConfig model = mlp({16, 8}, 0.0);
  model.num_classes = 1;
  model.init = {{"0.weight", config::NormalInit{.std = 0.1}},
                {"bias", config::ConstantInit{.val = 0.1}}};
  return {
      .name = "mlp_adam_binary",
      .model = model,
      .task = {config::BinaryClassificationTask{.pos_weight = 3}},
      .optimizer = {.method = config::AdamConfig{.lr = 1e-2, .betas = {0.9, 0.999}, .eps = 1e-6}},
      .train = kUnclipped,
      .schedule = kConstant,
      .sample = labeled(DType::kF32, {10}),
      .classes = 2,
      .num_stored = 48};
}

ParityCase mlp_muon_groups() {
  return {.name = "mlp_muon_groups",
          .model = mlp({16, 8}, 0.0),
          .task = {config::RegressionTask{}},
          .optimizer = {.method = config::MuonConfig{.lr = 4e-3,
                                                     .momentum = 0.9,
                                                     .nesterov = true,
                                                     .adamw_params = {"4.*"},
                                                     .betas = {0.9, 0.99},
                                                     .eps = 1e-6,
                                                     .weight_decay = 0.1},
                        .param_groups = {{.params = "0.weight", .lr_scale = 0.5},
                                         {.params = "*.bias", .weight_decay = 0.0}}},
          .train = {.max_grad_norm = 0.5},
          .schedule = kHalved,
          .sample = with_target(2)};
}

ParityCase mlp_lion_linear() {
  return {
      .name = "mlp_lion_linear",
      .model = mlp({16, 8}, 0.0),
      .task = {config::RegressionTask{}},
      .optimizer = {.method =
                        config::LionConfig{.lr = 1e-3, .betas = {0.9, 0.99}, .weight_decay = 0.1}},
      .schedule = {.schedule = config::LinearScheduler{.min_lr = 1e-4}, .warmup_steps = 2},
      .sample = with_target(2)};
}

}  // namespace

std::vector<ParityCase> update_cases() {
  return {mlp_sgd_momentum_linear(),
          mlp_adamw_groups(),
          mlp_rmsprop_multilabel(),
          mlp_rmsprop_plain(),
          mlp_adagrad_smoothed(),
          mlp_sgd_weighted(),
          mlp_sgd_weighted_multilabel(),
          mlp_adam_binary(),
          mlp_muon_groups(),
          mlp_lion_linear()};
}

}  // namespace stoker::parity
