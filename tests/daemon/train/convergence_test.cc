// Sequence models and tasks must learn a simple rule from synthetic data within seconds.
#include <functional>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "shared/task/task.h"

namespace stoker::train {
namespace {

using config::Pooling;

struct LearningCase {
  std::string name;
  config::ModelConfig model;
  config::TaskConfig task;
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;
  std::function<task::Batch()> batch;
  int steps = 60;
};
void PrintTo(const LearningCase& learning_case, std::ostream* out) { *out << learning_case.name; }

constexpr int64_t kSamples = 48;
constexpr int64_t kSteps = 12;
constexpr int64_t kFeatures = 4;
constexpr int64_t kTokens = 16;

config::ModelConfig blstm(Pooling pooling, int64_t layers = 1) {
  return {.arch = config::BlstmConfig{
              .num_layers = layers, .hidden_size = 24, .vocab_size = kTokens, .pooling = pooling}};
}

// The label is whether the first feature of the first time step exceeds that of the last, so both
// ends matter.
task::Batch endpoint_batch() {
  const at::Tensor input = at::randn({kSamples, kSteps, kFeatures});
  const at::Tensor first = input.select(2, 0);
  return {input, first.select(1, 0).gt(first.select(1, kSteps - 1)).to(at::kLong)};
}

// Each token determines the next one.
task::Batch markov_batch() {
  std::vector<at::Tensor> tokens{at::randint(kTokens, {kSamples}, at::kLong)};
  for (int64_t i = 0; i < kSteps; ++i)
    tokens.push_back(tokens.back().mul(5).add(3).remainder(kTokens));
  return {at::stack(tokens, 1).to(at::kByte)};
}

// Each label is the sign of one feature.
task::Batch sign_batch() {
  const at::Tensor input = at::randn({kSamples, kFeatures});
  return {input, input.narrow(1, 0, kFeatures - 1).gt(0).to(at::kFloat)};
}

// Sets the tokens at positions from `length` on to 0.
at::Tensor without_padding(const at::Tensor& values, const at::Tensor& length) {
  const at::Tensor step = at::arange(values.size(1)).unsqueeze(0);
  return values.masked_fill(step.ge(length.unsqueeze(1)), 0);
}

// The label of a time step is whether the next token is larger than the previous one, which
// requires a bidirectional model. Time steps without both neighbors are ignored (-100).
task::Batch rising_tokens_batch() {
  const at::Tensor length = at::randint(4, kSteps + 1, {kSamples}, at::kLong);
  const at::Tensor tokens =
      without_padding(at::randint(kTokens, {kSamples, kSteps}, at::kLong), length);
  const at::Tensor step = at::arange(kSteps).unsqueeze(0);
  const at::Tensor counts = step.gt(0).logical_and(step.lt(length.unsqueeze(1) - 1));
  const at::Tensor is_rising = tokens.roll({-1}, {1}).gt(tokens.roll({1}, {1}));
  return {tokens.to(at::kInt), is_rising.to(at::kLong).masked_fill(counts.logical_not(), -100),
          length};
}

// The label is whether the last token of a sequence is larger than the first.
task::Batch token_endpoint_batch() {
  const at::Tensor length = at::randint(2, kSteps + 1, {kSamples}, at::kLong);
  const at::Tensor tokens =
      without_padding(at::randint(kTokens, {kSamples, kSteps}, at::kLong), length);
  const at::Tensor last = tokens.gather(1, length.sub(1).unsqueeze(1)).squeeze(1);
  return {tokens.to(at::kInt), last.gt(tokens.select(1, 0)).to(at::kLong), length};
}

LearningCase sequence_labeling_case() {
  return {.name = "blstm_sequence_labeling",
          .model = blstm(Pooling::kNone),
          .task = {config::SequenceLabelingTask{}},
          .sample = {{"tokens", DType::kI32, {kSteps}},
                     {"labels", DType::kI64, {kSteps}},
                     {"length", DType::kI64, {}}},
          .classes = 2,
          .batch = rising_tokens_batch};
}

// Three labels per sample. Each is active for three of four time steps on its own feature; the
// blank is active in the fourth.
task::Batch ctc_batch() {
  const at::Tensor labels = at::randint(1, kFeatures, {kSamples, 3}, at::kLong);
  const at::Tensor place = at::arange(kSteps).floor_divide(4);
  const at::Tensor shown = labels.index_select(1, place).mul(at::arange(kSteps).remainder(4).lt(3));
  return {at::one_hot(shown, kFeatures).to(at::kFloat), labels};
}

LearningCase ctc_case() {
  return {.name = "blstm_ctc",
          .model = blstm(Pooling::kNone),
          .task = {config::CtcTask{}},
          .sample = {{"input", DType::kF32, {kSteps, kFeatures}}, {"labels", DType::kI64, {3}}},
          .classes = kFeatures,
          .batch = ctc_batch};
}

LearningCase token_case(const std::string& name, Pooling pooling) {
  return {.name = name,
          .model = blstm(pooling),
          .task = {config::ClassificationTask{}},
          .sample = {{"tokens", DType::kI32, {kSteps}},
                     {"label", DType::kI64, {}},
                     {"length", DType::kI64, {}}},
          .classes = 2,
          .batch = token_endpoint_batch};
}

LearningCase multilabel_case() {
  return {.name = "mlp_multilabel",
          .model = {.arch = config::MlpConfig{.hidden_sizes = {24}}},
          .task = {config::MultilabelClassificationTask{}},
          .sample = {{"input", DType::kF32, {kFeatures}}, {"target", DType::kF32, {kFeatures - 1}}},
          .batch = sign_batch};
}

LearningCase blstm_case(const std::string& name, Pooling pooling, int64_t layers) {
  return {.name = name,
          .model = blstm(pooling, layers),
          .task = {config::ClassificationTask{}},
          .sample = {{"input", DType::kF32, {kSteps, kFeatures}}, {"label", DType::kI64, {}}},
          .classes = 2,
          .batch = endpoint_batch};
}

LearningCase language_case(const std::string& name, config::ModelVariant arch) {
  return {.name = name,
          .model = {.arch = std::move(arch)},
          .task = {config::LanguageModelingTask{}},
          .sample = {{"tokens", DType::kU8, {kSteps + 1}}},
          .classes = kTokens,
          .batch = markov_batch};
}

LearningCase lstm_case(const std::string& name, bool tied, double dropout) {
  return language_case(name, config::LstmLmConfig{.num_layers = 2,
                                                  .hidden_size = 24,
                                                  .vocab_size = kTokens,
                                                  .dropout = dropout,
                                                  .tie_weights = tied});
}

LearningCase gpt_case() {
  return language_case("gpt", config::GptConfig{.num_layers = 2,
                                                .num_heads = 2,
                                                .embed_dim = 24,
                                                .context_length = kSteps,
                                                .vocab_size = kTokens,
                                                .dropout = 0.1});
}

LearningCase gpt2_case() {
  return language_case("gpt2", config::Gpt2Config{.num_layers = 2,
                                                  .num_heads = 2,
                                                  .embed_dim = 24,
                                                  .context_length = kSteps,
                                                  .vocab_size = kTokens,
                                                  .dropout = 0.1});
}

LearningCase llama_case() {
  return language_case("llama", config::LlamaConfig{.num_layers = 2,
                                                    .num_heads = 4,
                                                    .num_key_value_heads = 2,
                                                    .embed_dim = 24,
                                                    .mlp_dim = 48,
                                                    .context_length = kSteps,
                                                    .vocab_size = kTokens,
                                                    .qk_norm = true,
                                                    .tie_weights = true,
                                                    .attention_dropout = 0.1});
}

LearningCase sequential_case() {
  return language_case(
      "sequential_of_tokens",
      config::SequentialConfig{
          {config::EmbeddingLayer{.num_embeddings = kTokens, .embedding_dim = 24},
           config::LstmLayer{.hidden_size = 24}, config::LayerNormLayer{}, config::LinearLayer{}}});
}

class TaskLearningTest : public testing::TestWithParam<LearningCase> {};

TEST_P(TaskLearningTest, ReducesLossSubstantially) {
  const LearningCase& learning_case = GetParam();
  at::set_num_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  const auto model =
      model::make_model(learning_case.model, learning_case.sample, learning_case.classes);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const auto task =
      task::make_task(learning_case.task, nullptr, learning_case.sample, learning_case.classes);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  NamedTensors parameters;
  for (const auto& item : (*model)->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  const auto optimizer =
      Optimizer::create({.method = config::AdamWConfig{.lr = 0.02}}, {}, parameters);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  const task::Batch batch = learning_case.batch();
  double first = 0, last = 0;
  for (int step = 0; step < learning_case.steps; ++step) {
    const at::Tensor loss = (*task)->loss(**model, batch);
    last = loss.item<double>();
    if (step == 0) first = last;
    loss.backward();
    (*optimizer)->step(0.02);
    (*optimizer)->zero_grad();
  }
  EXPECT_LT(last, 0.3 * first) << "from " << first;
}

INSTANTIATE_TEST_SUITE_P(Tasks, TaskLearningTest,
                         testing::Values(multilabel_case(),
                                         blstm_case("blstm_last", Pooling::kLast, 1),
                                         blstm_case("blstm_mean_two_layers", Pooling::kMean, 2),
                                         sequence_labeling_case(), ctc_case(),
                                         token_case("blstm_of_tokens_last", Pooling::kLast),
                                         token_case("blstm_of_tokens_mean", Pooling::kMean),
                                         lstm_case("lstm", false, 0.1),
                                         lstm_case("lstm_tied", true, 0.0), gpt_case(), gpt2_case(),
                                         llama_case(), sequential_case()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::train
