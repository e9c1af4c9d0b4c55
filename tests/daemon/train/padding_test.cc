// Language models on padded texts: padding must not affect losses, gradients and metrics.
#include <cmath>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "shared/task/task.h"

namespace stoker::train {
namespace {

constexpr int64_t kVocabulary = 16;
constexpr int64_t kMaxLength = 7;

class PaddedTextTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(1);
    const config::GptConfig gpt{.num_layers = 2,
                                .num_heads = 2,
                                .embed_dim = 12,
                                .context_length = kMaxLength,
                                .vocab_size = kVocabulary};
    const config::LstmLmConfig lstm{.num_layers = 2,
                                    .hidden_size = 12,
                                    .context_length = kMaxLength,
                                    .vocab_size = kVocabulary};
    const config::LlamaConfig llama{.num_layers = 2,
                                    .num_heads = 2,
                                    .embed_dim = 12,
                                    .context_length = kMaxLength,
                                    .vocab_size = kVocabulary};
    const config::ModelConfig config{.arch = GetParam() == "gpt"     ? config::ModelVariant(gpt)
                                             : GetParam() == "llama" ? config::ModelVariant(llama)
                                                                     : config::ModelVariant(lstm)};
    model_ = *model::make_model(config, spec(kMaxLength, true), 0);
    for (const int64_t length : {7, 3, 2, 5})
      texts_.push_back(at::randint(1, kVocabulary, {length}, at::kInt));
  }

  static std::vector<TensorSpec> spec(int64_t length, bool has_length) {
    std::vector<TensorSpec> spec{{.name = "tokens", .dtype = DType::kI32, .shape = {length}}};
    if (has_length) spec.push_back({.name = "length", .dtype = DType::kI64, .shape = {}});
    return spec;
  }
  static std::unique_ptr<task::Task> task(int64_t length, bool has_length) {
    return *task::make_task({config::LanguageModelingTask{}}, nullptr, spec(length, has_length), 0);
  }
  // All texts, padded with `filler`.
  task::Batch padded(int filler = 0) const {
    std::vector<at::Tensor> rows;
    std::vector<int64_t> lengths;
    for (const at::Tensor& text : texts_) {
      at::Tensor row = at::zeros({kMaxLength}, at::kInt).add_(filler);
      row.narrow(0, 0, text.size(0)).copy_(text);
      rows.push_back(row);
      lengths.push_back(text.size(0));
    }
    return {at::stack(rows), at::tensor(lengths)};
  }

  model::ModelPtr model_;
  std::vector<at::Tensor> texts_;
};

TEST_P(PaddedTextTest, AveragesLossOverValidTokens) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t tokens = 0;
  for (const at::Tensor& text : texts_) {
    const int64_t predicted = text.size(0) - 1;
    sum += task(text.size(0), false)->loss(*model_, {text.unsqueeze(0)}).item<double>() *
           static_cast<double>(predicted);
    tokens += predicted;
  }
  const double loss = task(kMaxLength, true)->loss(*model_, padded()).item<double>();
  EXPECT_NEAR(loss, sum / static_cast<double>(tokens), 1e-5);
}

TEST_P(PaddedTextTest, IgnoresPaddingValuesInGradients) {
  const auto gradients = [&](int filler) {
    for (const at::Tensor& parameter : model_->parameters()) parameter.mutable_grad().reset();
    task(kMaxLength, true)->loss(*model_, padded(filler)).backward();
    std::vector<at::Tensor> found;
    for (const at::Tensor& parameter : model_->parameters()) found.push_back(parameter.grad());
    return found;
  };
  const auto with_zeros = gradients(0), with_others = gradients(9);
  for (size_t i = 0; i < with_zeros.size(); ++i)
    EXPECT_TRUE(at::allclose(with_zeros[i], with_others[i], 1e-5, 1e-7)) << i;
}

TEST_P(PaddedTextTest, ReturnsZeroLossAndGradientsWithoutTargets) {
  const task::Batch batch{at::zeros({2, kMaxLength}, at::kInt),
                          at::tensor({int64_t{1}, int64_t{1}})};
  const at::Tensor loss = task(kMaxLength, true)->loss(*model_, batch);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  for (const at::Tensor& parameter : model_->parameters())
    EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
}

TEST_P(PaddedTextTest, CountsOnlyValidTokensInEvaluation) {
  const auto whole = task(kMaxLength, true)->start_evaluation({});
  whole->add(*model_, padded());
  const auto by_text = task(kMaxLength, true)->start_evaluation({});
  for (const at::Tensor& text : texts_)
    by_text->add(*model_, {text.unsqueeze(0), at::tensor({text.size(0)})});
  const auto metrics = whole->report().metrics, expected = by_text->report().metrics;
  ASSERT_EQ(metrics.size(), expected.size());
  for (size_t i = 0; i < metrics.size(); ++i)
    EXPECT_NEAR(metrics[i].second, expected[i].second, 1e-5) << metrics[i].first;
  // Counting the padding must give a different result.
  const auto unmasked = task(kMaxLength, false)->start_evaluation({});
  unmasked->add(*model_, padded());
  EXPECT_GT(std::abs(unmasked->report().metrics[0].second - metrics[0].second), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, PaddedTextTest, ::testing::Values("gpt", "llama", "lstm"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::train
