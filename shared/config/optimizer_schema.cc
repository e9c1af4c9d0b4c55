#include "shared/config/optimizer_schema.h"

#include <array>

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kOptimizerKinds = std::to_array(
    {"sgd"sv, "momentum"sv, "adam"sv, "adamw"sv, "rmsprop"sv, "adagrad"sv, "lion"sv, "muon"sv});
constexpr auto kScheduleKinds = std::to_array({"constant"sv, "cosine"sv, "linear"sv, "step"sv});

constexpr double kManySteps = 1e15;  // for every use enough, and no product of two overflows

std::vector<Field> fields_of_group(ParameterGroup& group) {
  return {{.name = "match", .target = &group.match, .is_required = true},
          {.name = "lr_scale", .target = &group.lr_scale, .min = 0, .max = 1e6, .above_min = true},
          {.name = "weight_decay",
           .target = &group.weight_decay,
           .min = 0,
           .max = 1e3,
           .may_be_off = false}};
}

// What makes a step of the gradient.
std::vector<Field> fields_of_rule(OptimizerConfig& optimizer) {
  const auto part = [](std::string_view name, auto& target, std::string_view kinds) {
    return Field{
        .name = name, .target = &target, .min = 0, .max = 1, .kinds = kinds, .decides = true};
  };
  return {{.name = "kind", .target = choice(optimizer.kind, kOptimizerKinds), .decides = true},
          {.name = "lr",
           .target = &optimizer.lr,
           .min = 0,
           .max = 1e3,
           .above_min = true,
           .decides = true},
          part("betas", optimizer.betas, "adam adamw lion muon"),
          {.name = "eps",
           .target = &optimizer.eps,
           .min = 0,
           .max = 1,
           .above_min = true,
           .kinds = "adam adamw rmsprop adagrad muon",
           .decides = true},
          part("momentum", optimizer.momentum, "momentum rmsprop muon"),
          part("alpha", optimizer.alpha, "rmsprop"),
          {.name = "nesterov",
           .target = &optimizer.nesterov,
           .kinds = "momentum muon",
           .decides = true},
          {.name = "adamw_for", .target = &optimizer.adamw_for, .kinds = "muon", .decides = true}};
}

// What is done to gradients and weights beside it, and to which.
std::vector<Field> fields_of_bounds(OptimizerConfig& optimizer) {
  return {
      {.name = "weight_decay",
       .target = &optimizer.weight_decay,
       .min = 0,
       .max = 1e3,
       .decides = true},
      {.name = "clip_norm", .target = &optimizer.clip_norm, .min = 0, .max = 1e9, .decides = true},
      {.name = "clip_value",
       .target = &optimizer.clip_value,
       .min = 0,
       .max = 1e9,
       .decides = true},
      {.name = "groups",
       .target = rows<ParameterGroup, fields_of_group>(optimizer.groups),
       .decides = true}};
}

}  // namespace

// The order is that of config/stoker.yaml.
Section optimizer_section(OptimizerConfig& optimizer) {
  Section section{"optimizer", fields_of_rule(optimizer)};
  const std::vector<Field> more = fields_of_bounds(optimizer);
  section.fields.insert(section.fields.end(), more.begin(), more.end());
  return section;
}

Section schedule_section(ScheduleConfig& schedule) {
  const std::string_view to_the_end = "cosine linear";
  const std::string_view in_steps = "step";
  return {"schedule",
          {{.name = "kind", .target = choice(schedule.kind, kScheduleKinds), .decides = true},
           {.name = "warmup_steps",
            .target = &schedule.warmup_steps,
            .min = 0,
            .max = kManySteps,
            .decides = true},
           {.name = "min_lr",
            .target = &schedule.min_lr,
            .min = 0,
            .max = 1e3,
            .kinds = to_the_end,
            .decides = true},
           {.name = "every_steps",
            .target = &schedule.every_steps,
            .min = 1,
            .max = kManySteps,
            .kinds = in_steps,
            .decides = true},
           {.name = "factor",
            .target = &schedule.factor,
            .min = 0,
            .max = 1e3,
            .above_min = true,
            .kinds = in_steps,
            .decides = true}}};
}

}  // namespace stoker::config
