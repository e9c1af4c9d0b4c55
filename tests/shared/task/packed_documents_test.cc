// Samples of several documents: each document has the loss and the gradients that it has alone.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"

namespace stoker::task {
namespace {

using ::testing::ValuesIn;

constexpr int64_t kLength = 24, kVocab = 19;

struct ModelCase {
  std::string name;
  config::ModelVariant arch;
};

std::vector<ModelCase> model_cases() {
  const config::GptConfig gpt{.num_layers = 2,
                              .num_heads = 2,
                              .embed_dim = 8,
                              .context_length = kLength,
                              .vocab_size = kVocab,
                              .dropout = 0};
  config::GptConfig checkpointed = gpt;
  checkpointed.activation_checkpointing = true;
  const config::Gpt2Config gpt2{.num_layers = 2,
                                .num_heads = 2,
                                .embed_dim = 8,
                                .context_length = kLength,
                                .vocab_size = kVocab,
                                .dropout = 0};
  const config::LlamaConfig llama{.num_layers = 2,
                                  .num_heads = 4,
                                  .num_key_value_heads = 2,
                                  .embed_dim = 16,
                                  .mlp_dim = 24,
                                  .context_length = kLength,
                                  .vocab_size = kVocab};
  config::LlamaConfig qwen3 = llama;
  qwen3.qk_norm = qwen3.tie_weights = qwen3.activation_checkpointing = true;
  return {{"gpt", gpt},
          {"gpt_checkpointed", checkpointed},
          {"gpt2", gpt2},
          {"llama", llama},
          {"qwen3", qwen3}};
}

at::Tensor padded(const at::Tensor& values) {
  return at::cat({values, at::zeros({kLength - values.size(0)}, values.options())});
}

// Documents as with sequence.packing: two samples with padding, three documents in the first.
struct PackedDocuments {
  std::vector<std::vector<at::Tensor>> samples;  // the tokens of each document

  PackedDocuments() {
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{9, 2, 11}, {16, 7}}) {
      std::vector<at::Tensor>& documents = samples.emplace_back();
      for (const int64_t length : lengths)
        documents.push_back(at::randint(kVocab, {length}, at::kLong));
    }
  }
  at::Tensor tokens() const {
    std::vector<at::Tensor> rows;
    for (const auto& documents : samples) rows.push_back(padded(at::cat(documents)));
    return at::stack(rows);
  }
  at::Tensor position_ids() const {
    std::vector<at::Tensor> rows;
    for (const auto& documents : samples) {
      std::vector<at::Tensor> positions;
      for (const at::Tensor& document : documents)
        positions.push_back(at::arange(document.size(0), at::kInt));
      rows.push_back(padded(at::cat(positions)));
    }
    return at::stack(rows);
  }
  // The documents alone, one per sample.
  Batch alone() const {
    std::vector<at::Tensor> rows, lengths;
    for (const auto& documents : samples)
      for (const at::Tensor& document : documents) {
        rows.push_back(padded(document));
        lengths.push_back(at::scalar_tensor(document.size(0), at::kLong));
      }
    return {at::stack(rows).to(at::kInt), at::stack(lengths)};
  }
  Batch packed() const { return {tokens().to(at::kInt), position_ids()}; }
};

const TensorSpec kTokens{"tokens", DType::kI32, {kLength}};
const TensorSpec kPositions{"position_ids", DType::kI32, {kLength}};
const TensorSpec kLengthOf{"length", DType::kI64, {}};

class PackedDocumentsTest : public ::testing::TestWithParam<ModelCase> {
 protected:
  PackedDocumentsTest() {
    at::set_num_threads(1);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(7);
    auto made = model::make_model({.arch = GetParam().arch}, {kTokens}, kVocab);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    model_ = *made;
    // Larger than initialized, so that attention matters.
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model_->parameters())
      if (parameter.dim() == 2) parameter.mul_(8);
  }
  static std::unique_ptr<Task> task(const std::vector<TensorSpec>& sample) {
    auto task = make_task({config::LanguageModelingTask{}}, nullptr, sample, kVocab);
    EXPECT_TRUE(task.ok()) << task.status().to_string();
    return *std::move(task);
  }
  std::vector<at::Tensor> gradients_of(const at::Tensor& loss) {
    model_->zero_grad();
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model_->parameters())
      gradients.push_back(parameter.grad().clone());
    return gradients;
  }

  model::ModelPtr model_;
  PackedDocuments documents_;
};

TEST_P(PackedDocumentsTest, HaveTheLogitsOfEachDocumentAlone) {
  const at::NoGradGuard no_grad;
  model_->eval();
  model_->to(at::kDouble);
  const at::Tensor packed =
      model_->forward_packed(documents_.tokens(), documents_.position_ids().to(at::kLong));
  for (size_t sample = 0; sample < documents_.samples.size(); ++sample) {
    int64_t at = 0;
    for (const at::Tensor& document : documents_.samples[sample]) {
      const at::Tensor alone = model_->forward(document.unsqueeze(0))[0];
      const at::Tensor own = packed[static_cast<int64_t>(sample)].narrow(0, at, document.size(0));
      EXPECT_TRUE(at::allclose(own, alone, 1e-10, 1e-10)) << "sample " << sample << " at " << at;
      at += document.size(0);
    }
  }
}

TEST_P(PackedDocumentsTest, HaveTheLossAndGradientsOfDocumentsAlone) {
  const at::Tensor alone = task({kTokens, kLengthOf})->loss(*model_, documents_.alone());
  const std::vector<at::Tensor> expected = gradients_of(alone);
  const at::Tensor packed = task({kTokens, kPositions})->loss(*model_, documents_.packed());
  const std::vector<at::Tensor> gradients = gradients_of(packed);
  EXPECT_NEAR(packed.item<double>(), alone.item<double>(), 1e-5);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double largest = expected[i].abs().max().item<double>();
    EXPECT_LE((gradients[i] - expected[i]).abs().max().item<double>(), 1e-5 * largest)
        << "parameter " << i;
  }
}

TEST_P(PackedDocumentsTest, AreEvaluatedAsDocumentsAlone) {
  model_->eval();
  const auto report_of = [&](const std::vector<TensorSpec>& sample, const Batch& batch) {
    const auto language_modeling = task(sample);
    const auto evaluation = language_modeling->start_evaluation({});
    evaluation->add(*model_, batch);
    const eval_metrics::EvalReport report = evaluation->report();
    return std::map<std::string, double>(report.metrics.begin(), report.metrics.end());
  };
  const auto alone = report_of({kTokens, kLengthOf}, documents_.alone());
  const auto packed = report_of({kTokens, kPositions}, documents_.packed());
  ASSERT_EQ(packed.size(), alone.size());
  for (const auto& [name, value] : alone)
    EXPECT_NEAR(packed.at(name), value, 1e-4 * std::abs(value)) << name;
}

// Positions come from other processes.
TEST_P(PackedDocumentsTest, AcceptAnyPositions) {
  Batch batch = documents_.packed();
  batch[1][0][3] = kLength + 1000;
  batch[1][1][5] = -7;
  EXPECT_TRUE(std::isfinite(task({kTokens, kPositions})->loss(*model_, batch).item<double>()));
}

INSTANTIATE_TEST_SUITE_P(Models, PackedDocumentsTest, ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(UnpackedModelTest, RejectsPackedSamples) {
  auto made =
      model::make_model({.arch = config::LstmLmConfig{.vocab_size = kVocab}}, {kTokens}, kVocab);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const at::Tensor tokens = at::zeros({1, 4}, at::kLong);
  EXPECT_THROW((*made)->forward_packed(tokens, tokens), c10::Error);
}

}  // namespace
}  // namespace stoker::task
