// What cases are made of: models' settings, samples, optimizers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"
#include "shared/config/optimizer_config.h"

namespace stoker::twin {

config::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t context,
                        int64_t vocab);
config::ModelConfig mlp(std::vector<int64_t> hidden, double dropout);
config::ModelConfig resnet(int64_t depth);
config::ModelConfig alexnet(int64_t width, double dropout);
config::ModelConfig vgg(int64_t depth, bool batch_norm, int64_t width, double dropout);
config::ModelConfig vit(int64_t layers, int64_t heads, int64_t width, int64_t patch_size);
config::ModelConfig inception(bool aux_logits, double dropout);
config::ModelConfig layers(std::vector<config::LayerConfig> stack);
config::ModelConfig blstm(int64_t layers, int64_t width, const std::string& states);
config::ModelConfig lstm(int64_t layers, int64_t width, int64_t vocab, bool tied);

std::vector<TensorSpec> tokens(int64_t length);
std::vector<TensorSpec> sequences(int64_t steps, int64_t features);
std::vector<TensorSpec> labelled(DType dtype, std::vector<int64_t> shape);

// With momentum where it is above 0.
config::OptimizerConfig plain_sgd(double momentum);
inline constexpr config::ScheduleConfig kConstant{.kind = config::ScheduleKind::kConstant,
                                                  .warmup_steps = 0};

}  // namespace stoker::twin
