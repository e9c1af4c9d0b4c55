#include "shared/config/task_schema.h"

#include <array>

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kTaskKinds = std::to_array({"language_model"sv, "classification"sv, "regression"sv,
                                           "multi_label"sv, "tagging"sv, "ctc"sv});

std::vector<Field> fields_of_input(TaskConfig& task) {
  const std::string_view of_pictures = "classification regression multi_label";
  return {{.name = "kind", .target = choice(task.kind, kTaskKinds), .decides = true},
          {.name = "mean",
           .target = &task.mean,
           .min = -1e3,
           .max = 1e3,
           .kinds = of_pictures,
           .decides = true},
          {.name = "std",
           .target = &task.std,
           .min = 0,
           .max = 1e3,
           .above_min = true,
           .kinds = of_pictures,
           .decides = true}};
}

std::vector<Field> fields_of_loss(TaskConfig& task) {
  const auto of_classification = [](std::string_view name, double& target) {
    return Field{.name = name,
                 .target = &target,
                 .min = 0,
                 .max = 1e3,
                 .kinds = "classification",
                 .decides = true};
  };
  return {
      {.name = "label_smoothing",
       .target = &task.label_smoothing,
       .min = 0,
       .max = 0.99,
       .kinds = "classification tagging",
       .decides = true},
      of_classification("mixup", task.mixup),
      of_classification("cutmix", task.cutmix),
      of_classification("aux_weight", task.aux_weight),
      {.name = "class_weights",
       .target = NumbersOrWord{&task.class_weights, &task.balanced_weights, "balanced"},
       .min = 0,
       .max = 1e6,
       .kinds = "classification multi_label tagging",
       .decides = true},
      {.name = "zero_infinity", .target = &task.zero_infinity, .kinds = "ctc", .decides = true}};
}

}  // namespace

// The order is that of config/stoker.yaml.
Section task_section(TaskConfig& task) {
  Section section{"task", fields_of_input(task)};
  const std::vector<Field> more = fields_of_loss(task);
  section.fields.insert(section.fields.end(), more.begin(), more.end());
  return section;
}

}  // namespace stoker::config
