#include "tests/twin/update_cases.h"

#include "tests/twin/case_parts.h"

namespace stoker::twin {
namespace {

std::vector<TensorSpec> with_target(int64_t width) {
  return {{"input", DType::kF32, {10}}, {"target", DType::kF32, {width}}};
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
          .sample = with_target(2)};
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
          .sample = with_target(2)};
}

TwinCase mlp_rmsprop_multi_label() {
  return {.name = "mlp_rmsprop_multi_label",
          .model = mlp({16, 8}, 0.0),
          .task = {config::TaskKind::kMultiLabel},
          .optimizer = {.kind = config::OptimizerKind::kRmsprop,
                        .lr = 0.003,
                        .eps = 1e-6,
                        .momentum = 0.8,
                        .alpha = 0.9,
                        .weight_decay = 0.01,
                        .clip_norm = 1.0},
          .schedule = {.kind = config::ScheduleKind::kStep,
                       .warmup_steps = 0,
                       .every_steps = 4,
                       .factor = 0.5},
          .sample = with_target(3)};
}

TwinCase mlp_rmsprop_plain() {
  return {.name = "mlp_rmsprop_plain",
          .model = mlp({16, 8}, 0.0),
          .task = {config::TaskKind::kRegression},
          .optimizer = {.kind = config::OptimizerKind::kRmsprop,
                        .lr = 0.003,
                        .eps = 1e-6,
                        .momentum = 0,
                        .weight_decay = 0,
                        .clip_norm = 0},
          .schedule = kConstant,
          .sample = with_target(2)};
}

TwinCase mlp_adagrad_smoothed() {
  TwinCase smoothed{.name = "mlp_adagrad_smoothed",
                    .model = mlp({16, 8}, 0.0),
                    .task = {config::TaskKind::kClassification},
                    .optimizer = {.kind = config::OptimizerKind::kAdagrad,
                                  .lr = 0.02,
                                  .eps = 1e-6,
                                  .weight_decay = 0.01,
                                  .clip_norm = 0},
                    .schedule = kConstant,
                    .sample = labelled(DType::kF32, {10}),
                    .classes = 4};
  smoothed.task.label_smoothing = 0.1;
  return smoothed;
}

config::OptimizerConfig unclipped_sgd() {
  return {.kind = config::OptimizerKind::kSgd, .lr = 0.1, .weight_decay = 0, .clip_norm = 0};
}

TwinCase mlp_sgd_weighted() {
  TwinCase weighted{.name = "mlp_sgd_weighted",
                    .model = mlp({16, 8}, 0.0),
                    .task = {config::TaskKind::kClassification},
                    .optimizer = unclipped_sgd(),
                    .schedule = kConstant,
                    .sample = labelled(DType::kF32, {10}),
                    .classes = 4};
  weighted.task.label_smoothing = 0.1;
  weighted.task.class_weights = {0.5, 2.0, 1.0, 0.25};
  return weighted;
}

TwinCase mlp_sgd_weighted_multi_label() {
  TwinCase weighted{.name = "mlp_sgd_weighted_multi_label",
                    .model = mlp({16, 8}, 0.0),
                    .task = {config::TaskKind::kMultiLabel},
                    .optimizer = unclipped_sgd(),
                    .schedule = kConstant,
                    .sample = with_target(3)};
  weighted.task.class_weights = {3.0, 1.0, 0.5};
  return weighted;
}

TwinCase mlp_muon_groups() {
  TwinCase grouped{.name = "mlp_muon_groups",
                   .model = mlp({16, 8}, 0.0),
                   .task = {config::TaskKind::kRegression},
                   .optimizer = {.kind = config::OptimizerKind::kMuon,
                                 .lr = 4e-3,
                                 .betas = {0.9, 0.99},
                                 .eps = 1e-6,
                                 .momentum = 0.9,
                                 .nesterov = true,
                                 .adamw_for = {"4.*"},
                                 .weight_decay = 0.1,
                                 .clip_norm = 0.5},
                   .schedule = {.kind = config::ScheduleKind::kStep,
                                .warmup_steps = 0,
                                .every_steps = 4,
                                .factor = 0.5},
                   .sample = with_target(2)};
  grouped.optimizer.groups = {{.match = "0.weight", .lr_scale = 0.5},
                              {.match = "*.bias", .weight_decay = 0.0}};
  return grouped;
}

TwinCase mlp_lion_linear() {
  return {.name = "mlp_lion_linear",
          .model = mlp({16, 8}, 0.0),
          .task = {config::TaskKind::kRegression},
          .optimizer = {.kind = config::OptimizerKind::kLion,
                        .lr = 1e-3,
                        .betas = {0.9, 0.99},
                        .weight_decay = 0.1,
                        .clip_norm = 1.0},
          .schedule = {.kind = config::ScheduleKind::kLinear, .warmup_steps = 2, .min_lr = 1e-4},
          .sample = with_target(2)};
}

}  // namespace

std::vector<TwinCase> update_cases() {
  return {mlp_momentum_linear(),
          mlp_adamw_groups(),
          mlp_rmsprop_multi_label(),
          mlp_rmsprop_plain(),
          mlp_adagrad_smoothed(),
          mlp_sgd_weighted(),
          mlp_sgd_weighted_multi_label(),
          mlp_muon_groups(),
          mlp_lion_linear()};
}

}  // namespace stoker::twin
