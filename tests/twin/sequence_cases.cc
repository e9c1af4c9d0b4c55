#include "tests/twin/sequence_cases.h"

#include <string>
#include <utility>

#include "tests/twin/case_parts.h"

namespace stoker::twin {
namespace {

TwinCase over_texts(const std::string& name, config::ModelConfig model) {
  return {.name = name,
          .model = std::move(model),
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

TwinCase blstm_adamw_last() {
  return {.name = "blstm_adamw_last",
          .model = blstm(1, 8, "last"),
          .task = {config::TaskKind::kClassification},
          .optimizer = {.kind = config::OptimizerKind::kAdamW,
                        .lr = 5e-3,
                        .betas = {0.9, 0.95},
                        .eps = 1e-6,
                        .weight_decay = 0.1,
                        .clip_norm = 1.0},
          .schedule = kConstant,
          .sample = sequences(7, 5),
          .classes = 4};
}

TwinCase blstm_momentum_mean() {
  return {.name = "blstm_momentum_mean",
          .model = blstm(2, 6, "mean"),
          .task = {config::TaskKind::kClassification},
          .optimizer = {.kind = config::OptimizerKind::kMomentum,
                        .lr = 0.1,
                        .momentum = 0.9,
                        .weight_decay = 0.0,
                        .clip_norm = 0.0},
          .schedule = kConstant,
          .sample = sequences(7, 5),
          .classes = 4};
}

// What padded() of cases.py makes.
std::vector<TensorSpec> padded(const TensorSpec& values, const TensorSpec& answer) {
  return {values, {"length", DType::kI64, {}}, answer};
}
const TensorSpec kVectors{"input", DType::kF32, {7, 5}};
const TensorSpec kTokens{"tokens", DType::kI32, {7}};
const TensorSpec kLabel{"label", DType::kI64, {}};
const TensorSpec kLabels{"labels", DType::kI64, {7}};

config::OptimizerConfig adam() {
  return {.kind = config::OptimizerKind::kAdam,
          .lr = 5e-3,
          .betas = {0.9, 0.95},
          .eps = 1e-6,
          .weight_decay = 0.0,
          .clip_norm = 1.0};
}

config::OptimizerConfig momentum() {
  return {.kind = config::OptimizerKind::kMomentum,
          .lr = 0.1,
          .momentum = 0.9,
          .weight_decay = 0.0,
          .clip_norm = 0.0};
}

TwinCase padded_case(const std::string& name, const config::ModelConfig& model,
                     const config::OptimizerConfig& optimizer, std::vector<TensorSpec> sample) {
  const bool is_tagging = sample.back().name == "labels";
  return {.name = name,
          .model = model,
          .task = {is_tagging ? config::TaskKind::kTagging : config::TaskKind::kClassification},
          .optimizer = optimizer,
          .schedule = kConstant,
          .sample = std::move(sample),
          .classes = 4,
          .kept = 48};
}

config::ModelConfig over_tokens(config::ModelConfig model, int64_t embedding) {
  model.vocab = 24;
  model.embedding = embedding;
  return model;
}

std::vector<TwinCase> padded_cases() {
  std::vector<TwinCase> cases{
      padded_case("blstm_adam_padded_last", blstm(2, 8, "last"), adam(), padded(kVectors, kLabel)),
      padded_case("blstm_momentum_padded_mean", over_tokens(blstm(1, 6, "mean"), 0), momentum(),
                  padded(kTokens, kLabel)),
      padded_case("blstm_adam_tagging", blstm(1, 8, "each"), adam(), padded(kVectors, kLabels)),
      padded_case("blstm_momentum_tagging", over_tokens(blstm(2, 6, "each"), 7), momentum(),
                  padded(kTokens, kLabels))};
  cases.back().task.class_weights = {0.5, 2.0, 1.0, 0.25};
  cases.back().task.label_smoothing = 0.1;
  cases.push_back(padded_case("blstm_adam_ctc", blstm(1, 8, "each"), adam(),
                              padded(kVectors, {"labels", DType::kI64, {4}})));
  cases.back().task.kind = config::TaskKind::kCtc;
  return cases;
}

TwinCase layers_lstm_momentum() {
  return {.name = "layers_lstm_momentum",
          .model = layers({{.kind = "embedding", .vocab = 64, .width = 12},
                           {.kind = "lstm", .width = 16},
                           {.kind = "linear"}}),
          .task = {config::TaskKind::kLanguageModel},
          .optimizer = plain_sgd(0.9),
          .schedule = kConstant,
          .sample = tokens(9),
          .classes = 64,
          .kept = 48};
}

}  // namespace

std::vector<TwinCase> sequence_cases() {
  std::vector<TwinCase> cases{over_texts("gpt_adamw_cosine", gpt(2, 16, 2, 8, 64)),
                              blstm_adamw_last(), blstm_momentum_mean(),
                              over_texts("lstm_adamw_tied", lstm(2, 12, 64, true)),
                              layers_lstm_momentum()};
  const std::vector<TwinCase> of_padded = padded_cases();
  cases.insert(cases.end(), of_padded.begin(), of_padded.end());
  return cases;
}

}  // namespace stoker::twin
