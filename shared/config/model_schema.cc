#include "shared/config/model_schema.h"

#include <array>

#include "shared/config/layer_schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kModelKinds =
    std::to_array({"gpt"sv, "mlp"sv, "lenet"sv, "resnet"sv, "alexnet"sv, "vgg"sv, "vit"sv,
                   "inception_v3"sv, "blstm"sv, "lstm"sv, "layers"sv, "plugin"sv, "torchscript"sv});

std::vector<Field> fields_of_rule(NameRule& rule) {
  return {{.name = "from", .target = &rule.from, .is_required = true},
          {.name = "to", .target = &rule.to, .is_required = true}};
}

std::vector<Field> fields_of_size(ModelConfig& model) {
  return {
      {.name = "kind", .target = choice(model.kind, kModelKinds), .decides = true},
      {.name = "layers",
       .target = &model.layers,
       .min = 1,
       .max = 1000,
       .kinds = "gpt resnet vgg vit blstm lstm",
       .decides = true},
      {.name = "batch_norm", .target = &model.batch_norm, .kinds = "vgg", .decides = true},
      {.name = "aux_logits", .target = &model.aux_logits, .kinds = "inception_v3", .decides = true},
      {.name = "width",
       .target = &model.width,
       .min = 1,
       .max = 1e6,
       .kinds = "gpt alexnet vgg vit blstm lstm",
       .decides = true},
      {.name = "heads",
       .target = &model.heads,
       .min = 1,
       .max = 1e6,
       .kinds = "gpt vit",
       .decides = true},
      {.name = "mlp_width",
       .target = &model.mlp_width,
       .min = 0,
       .max = 1e6,
       .kinds = "vit",
       .decides = true},
      {.name = "patch_size",
       .target = &model.patch_size,
       .min = 1,
       .max = 1e4,
       .kinds = "vit",
       .decides = true},
      {.name = "image_size",
       .target = &model.image_size,
       .min = 0,
       .max = 1e5,
       .kinds = "vit",
       .decides = true}};
}

std::vector<Field> fields_of_behaviour(ModelConfig& model) {
  const std::string_view of_tokens = "gpt lstm";
  return {{.name = "context",
           .target = &model.context,
           .min = 1,
           .max = 1e6,
           .kinds = of_tokens,
           .decides = true},
          {.name = "vocab",
           .target = &model.vocab,
           .min = 1,
           .max = 1e7,
           .kinds = "gpt lstm blstm",
           .decides = true},
          {.name = "dropout",
           .target = &model.dropout,
           .min = 0,
           .max = 0.99,
           .kinds = "gpt mlp alexnet vgg vit inception_v3 blstm lstm",
           .decides = true},
          {.name = "recompute", .target = &model.recompute, .kinds = "gpt"},
          {.name = "states",
           .target = &model.states,
           .kinds = "blstm",
           .words = "last mean each",
           .decides = true},
          {.name = "embedding",
           .target = &model.embedding,
           .min = 0,
           .max = 1e6,
           .kinds = "blstm",
           .decides = true},
          {.name = "tied", .target = &model.tied, .kinds = "lstm", .decides = true}};
}

std::vector<Field> fields_of_layers(ModelConfig& model) {
  return {{.name = "hidden",
           .target = &model.hidden,
           .min = 1,
           .max = 1e7,
           .kinds = "mlp",
           .decides = true},
          {.name = "inputs",
           .target = &model.inputs,
           .min = 0,
           .max = 1e9,
           .kinds = "mlp",
           .decides = true},
          {.name = "outputs",
           .target = &model.outputs,
           .min = 0,
           .max = 1e7,
           .kinds = "mlp lenet resnet alexnet vgg vit inception_v3 blstm layers plugin torchscript",
           .decides = true},
          {.name = "stack", .target = layer_rows(model.stack), .kinds = "layers", .decides = true},
          // Which file it is decides, not where it lies: Manifest::model_file.
          {.name = "path", .target = &model.path, .kinds = "plugin torchscript"},
          {.name = "parameters",
           .target = FreeMap{&model.parameters},
           .kinds = "plugin",
           .decides = true}};
}

std::vector<Field> fields_of_start(ModelConfig& model) {
  return {{.name = "init_from", .target = &model.init_from},
          {.name = "init_map", .target = rows<NameRule, fields_of_rule>(model.init_map)},
          {.name = "init_strict", .target = &model.init_strict},
          {.name = "init_ignore", .target = &model.init_ignore},
          {.name = "freeze", .target = &model.freeze, .decides = true}};
}

}  // namespace

// The order is that of config/stoker.yaml.
Section model_section(ModelConfig& model) {
  Section section{"model", fields_of_size(model)};
  for (std::vector<Field> more :
       {fields_of_behaviour(model), fields_of_layers(model), fields_of_start(model)})
    section.fields.insert(section.fields.end(), more.begin(), more.end());
  return section;
}

}  // namespace stoker::config
