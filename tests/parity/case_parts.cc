#include "tests/parity/case_parts.h"

#include <utility>

namespace stoker::parity {

config::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t context,
                        int64_t vocab) {
  return {.arch = config::GptConfig{.num_layers = layers,
                                    .num_heads = heads,
                                    .embed_dim = width,
                                    .context_length = context,
                                    .vocab_size = vocab}};
}

config::ModelConfig mlp(std::vector<int64_t> hidden, double dropout) {
  return {.arch = config::MlpConfig{.hidden_sizes = std::move(hidden), .dropout = dropout}};
}

config::ModelConfig resnet(int depth) { return {.arch = config::ResnetConfig{.depth = depth}}; }

config::ModelConfig alexnet(int64_t width, double dropout) {
  return {.arch = config::AlexnetConfig{.hidden_dim = width, .dropout = dropout}};
}

config::ModelConfig vgg(int depth, bool batch_norm, int64_t width, double dropout) {
  return {.arch = config::VggConfig{
              .depth = depth, .batch_norm = batch_norm, .hidden_dim = width, .dropout = dropout}};
}

config::ModelConfig vit(int64_t layers, int64_t heads, int64_t width, int64_t patch_size,
                        std::optional<int64_t> mlp_dim) {
  return {.arch = config::VitConfig{.patch_size = patch_size,
                                    .num_layers = layers,
                                    .num_heads = heads,
                                    .hidden_dim = width,
                                    .mlp_dim = mlp_dim}};
}

config::ModelConfig inception(bool aux_logits, double dropout) {
  return {.arch = config::InceptionV3Config{.aux_logits = aux_logits, .dropout = dropout}};
}

config::ModelConfig layers(std::vector<config::Layer> list) {
  return {.arch = config::SequentialConfig{std::move(list)}};
}

config::ModelConfig blstm(int64_t layers, int64_t width, config::Pooling pooling) {
  return {.arch =
              config::BlstmConfig{.num_layers = layers, .hidden_size = width, .pooling = pooling}};
}

config::ModelConfig lstm(int64_t layers, int64_t width, int64_t vocab, bool tied) {
  return {
      .arch = config::LstmLmConfig{
          .num_layers = layers, .hidden_size = width, .vocab_size = vocab, .tie_weights = tied}};
}

std::vector<TensorSpec> tokens(int64_t length) { return {{"tokens", DType::kU8, {length}}}; }

std::vector<TensorSpec> sequences(int64_t steps, int64_t features) {
  return {{"input", DType::kF32, {steps, features}}, {"label", DType::kI64, {}}};
}

std::vector<TensorSpec> labeled(DType dtype, std::vector<int64_t> shape) {
  return {{"input", dtype, std::move(shape)}, {"label", DType::kI64, {}}};
}

config::OptimizerConfig plain_sgd(double momentum) {
  return {.method = config::SgdConfig{.lr = 0.02, .momentum = momentum}};
}

}  // namespace stoker::parity
