#include "tests/twin/case_parts.h"

#include <utility>

namespace stoker::twin {
namespace {

config::ModelConfig recurrent(config::ModelKind kind, int64_t layers, int64_t width) {
  config::ModelConfig model;
  model.kind = kind;
  model.layers = layers;
  model.width = width;
  return model;
}

}  // namespace

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

config::ModelConfig vit(int64_t layers, int64_t heads, int64_t width, int64_t patch_size) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kVit;
  model.layers = layers;
  model.heads = heads;
  model.width = width;
  model.patch_size = patch_size;
  return model;
}

config::ModelConfig inception(bool aux_logits, double dropout) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kInceptionV3;
  model.aux_logits = aux_logits;
  model.dropout = dropout;
  return model;
}

config::ModelConfig layers(std::vector<config::LayerConfig> stack) {
  config::ModelConfig model;
  model.kind = config::ModelKind::kLayers;
  model.stack = std::move(stack);
  return model;
}

config::ModelConfig blstm(int64_t layers, int64_t width, const std::string& states) {
  config::ModelConfig model = recurrent(config::ModelKind::kBlstm, layers, width);
  model.states = states;
  return model;
}

config::ModelConfig lstm(int64_t layers, int64_t width, int64_t vocab, bool tied) {
  config::ModelConfig model = recurrent(config::ModelKind::kLstm, layers, width);
  model.vocab = vocab;
  model.tied = tied;
  return model;
}

std::vector<TensorSpec> tokens(int64_t length) { return {{"tokens", DType::kU8, {length}}}; }

std::vector<TensorSpec> sequences(int64_t steps, int64_t features) {
  return {{"input", DType::kF32, {steps, features}}, {"label", DType::kI64, {}}};
}

std::vector<TensorSpec> labelled(DType dtype, std::vector<int64_t> shape) {
  return {{"input", dtype, std::move(shape)}, {"label", DType::kI64, {}}};
}

config::OptimizerConfig plain_sgd(double momentum) {
  return {.kind = momentum > 0 ? config::OptimizerKind::kMomentum : config::OptimizerKind::kSgd,
          .lr = 0.02,
          .momentum = momentum,
          .weight_decay = 0.0,
          .clip_norm = 1.0};
}

}  // namespace stoker::twin
