#include "tests/parity/sequence_cases.h"

#include <optional>
#include <string>
#include <utility>

#include "tests/parity/case_parts.h"

namespace stoker::parity {
namespace {

using config::Pooling;

ParityCase over_texts(const std::string& name, config::ModelConfig model) {
  return {
      .name = name,
      .model = std::move(model),
      .task = {config::LanguageModelingTask{}},
      .optimizer = {.method =
                        config::AdamWConfig{
                            .lr = 3e-3, .betas = {0.9, 0.95}, .eps = 1e-6, .weight_decay = 0.1}},
      .train = {.max_grad_norm = 0.5},
      .schedule = {.schedule = config::CosineScheduler{.min_lr = 3e-4}, .warmup_steps = 3},
      .sample = tokens(9),
      .classes = 64};
}

ParityCase blstm_adamw_last() {
  return {
      .name = "blstm_adamw_last",
      .model = blstm(1, 8, Pooling::kLast),
      .task = {config::ClassificationTask{}},
      .optimizer = {.method =
                        config::AdamWConfig{
                            .lr = 5e-3, .betas = {0.9, 0.95}, .eps = 1e-6, .weight_decay = 0.1}},
      .schedule = kConstant,
      .sample = sequences(7, 5),
      .classes = 4};
}

ParityCase blstm_sgd_momentum_mean() {
  return {.name = "blstm_sgd_momentum_mean",
          .model = blstm(2, 6, Pooling::kMean),
          .task = {config::ClassificationTask{}},
          .optimizer = {.method = config::SgdConfig{.lr = 0.1, .momentum = 0.9}},
          .train = kUnclipped,
          .schedule = kConstant,
          .sample = sequences(7, 5),
          .classes = 4};
}

ParityCase blstm_adam_binary() {
  return {
      .name = "blstm_adam_binary",
      .model = {.arch =
                    config::BlstmConfig{
                        .hidden_size = 8, .pooling = Pooling::kMean, .forget_bias = 1},
                .num_classes = 1,
                .init = {{"weight*", config::XavierUniformInit{}}, {"bias*", config::ZerosInit{}}}},
      .task = {config::BinaryClassificationTask{}},
      .optimizer = {.method = config::AdamConfig{.lr = 5e-3, .betas = {0.9, 0.999}, .eps = 1e-6}},
      .schedule = kConstant,
      .sample = sequences(7, 5),
      .classes = 2,
      .num_stored = 48};
}

// The samples of padded() in sequence_cases.py.
std::vector<TensorSpec> padded(const TensorSpec& values, const TensorSpec& target) {
  return {values, {"length", DType::kI64, {}}, target};
}
const TensorSpec kVectors{"input", DType::kF32, {7, 5}};
const TensorSpec kTokens{"tokens", DType::kI32, {7}};
const TensorSpec kLabel{"label", DType::kI64, {}};
const TensorSpec kLabels{"labels", DType::kI64, {7}};

config::ModelConfig over_tokens(int64_t layers, int64_t width, Pooling pooling,
                                std::optional<int64_t> embedding) {
  return {.arch = config::BlstmConfig{.num_layers = layers,
                                      .hidden_size = width,
                                      .vocab_size = 24,
                                      .embedding_dim = embedding,
                                      .pooling = pooling}};
}

ParityCase padded_adam(const std::string& name, const config::ModelConfig& model,
                       const config::TaskConfig& task, std::vector<TensorSpec> sample) {
  return {
      .name = name,
      .model = model,
      .task = task,
      .optimizer = {.method = config::AdamConfig{.lr = 5e-3, .betas = {0.9, 0.95}, .eps = 1e-6}},
      .schedule = kConstant,
      .sample = std::move(sample),
      .classes = 4,
      .num_stored = 48};
}

ParityCase padded_sgd_momentum(const std::string& name, const config::ModelConfig& model,
                               const config::TaskConfig& task, std::vector<TensorSpec> sample) {
  return {.name = name,
          .model = model,
          .task = task,
          .optimizer = {.method = config::SgdConfig{.lr = 0.1, .momentum = 0.9}},
          .train = kUnclipped,
          .schedule = kConstant,
          .sample = std::move(sample),
          .classes = 4,
          .num_stored = 48};
}

std::vector<ParityCase> padded_cases() {
  const config::TaskConfig classification{config::ClassificationTask{}},
      labeling{config::SequenceLabelingTask{}}, ctc{config::CtcTask{}},
      weighted_labeling{config::SequenceLabelingTask{.label_smoothing = 0.1,
                                                     .class_weights = {0.5, 2.0, 1.0, 0.25}}};
  return {padded_adam("blstm_adam_padded_last", blstm(2, 8, Pooling::kLast), classification,
                      padded(kVectors, kLabel)),
          padded_sgd_momentum("blstm_sgd_momentum_padded_mean",
                              over_tokens(1, 6, Pooling::kMean, std::nullopt), classification,
                              padded(kTokens, kLabel)),
          padded_adam("blstm_adam_sequence_labeling", blstm(1, 8, Pooling::kNone), labeling,
                      padded(kVectors, kLabels)),
          padded_sgd_momentum("blstm_sgd_momentum_sequence_labeling",
                              over_tokens(2, 6, Pooling::kNone, 7), weighted_labeling,
                              padded(kTokens, kLabels)),
          padded_adam("blstm_adam_ctc", blstm(1, 8, Pooling::kNone), ctc,
                      padded(kVectors, {"labels", DType::kI64, {4}}))};
}

ParityCase sequential_lstm_sgd_momentum() {
  return {.name = "sequential_lstm_sgd_momentum",
          .model = layers({config::EmbeddingLayer{.num_embeddings = 64, .embedding_dim = 12},
                           config::LstmLayer{.hidden_size = 16}, config::LinearLayer{}}),
          .task = {config::LanguageModelingTask{}},
          .optimizer = plain_sgd(0.9),
          .schedule = kConstant,
          .sample = tokens(9),
          .classes = 64,
          .num_stored = 48};
}

}  // namespace

std::vector<ParityCase> sequence_cases() {
  std::vector<ParityCase> cases{over_texts("gpt_adamw_cosine", gpt(2, 16, 2, 8, 64)),
                                blstm_adamw_last(),
                                blstm_sgd_momentum_mean(),
                                blstm_adam_binary(),
                                over_texts("lstm_adamw_tied", lstm(2, 12, 64, true)),
                                sequential_lstm_sgd_momentum()};
  const std::vector<ParityCase> of_padded = padded_cases();
  cases.insert(cases.end(), of_padded.begin(), of_padded.end());
  return cases;
}

}  // namespace stoker::parity
