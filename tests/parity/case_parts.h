// Building blocks of the cases: model configurations, samples, optimizers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/config/model_config.h"
#include "shared/config/training_config.h"

namespace stoker::parity {

config::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads, int64_t context,
                        int64_t vocab);
config::ModelConfig mlp(std::vector<int64_t> hidden, double dropout);
config::ModelConfig resnet(int depth);
config::ModelConfig alexnet(int64_t width, double dropout);
config::ModelConfig vgg(int depth, bool batch_norm, int64_t width, double dropout);
config::ModelConfig vit(int64_t layers, int64_t heads, int64_t width, int64_t patch_size,
                        std::optional<int64_t> mlp_dim = std::nullopt);
config::ModelConfig inception(bool aux_logits, double dropout);
config::ModelConfig layers(std::vector<config::Layer> list);
config::ModelConfig blstm(int64_t layers, int64_t width, config::Pooling pooling);
config::ModelConfig lstm(int64_t layers, int64_t width, int64_t vocab, bool tied);

std::vector<TensorSpec> tokens(int64_t length);
std::vector<TensorSpec> sequences(int64_t steps, int64_t features);
std::vector<TensorSpec> labeled(DType dtype, std::vector<int64_t> shape);

// With momentum if it is above 0.
config::OptimizerConfig plain_sgd(double momentum);
inline constexpr config::SchedulerConfig kConstant{.schedule = config::ConstantScheduler{},
                                                   .warmup_steps = 0};
// Halves the learning rate every four steps.
inline constexpr config::SchedulerConfig kHalved{
    .schedule = config::StepScheduler{.step_size = 4, .gamma = 0.5}, .warmup_steps = 0};

inline const config::TrainConfig kUnclipped{.max_grad_norm = std::nullopt};

}  // namespace stoker::parity
