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
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"
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

// As with train.precision: bf16.
TEST_P(PackedDocumentsTest, DoNotSeeEachOtherInBf16) {
  const at::NoGradGuard no_grad;
  const model::Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  model_->eval();
  const at::Tensor positions = documents_.position_ids().to(at::kLong);
  const at::Tensor before = model_->forward_packed(documents_.tokens(), positions);
  EXPECT_EQ(before.scalar_type(), at::kBFloat16);
  at::Tensor changed = documents_.tokens();
  const int64_t first = documents_.samples[0][0].size(0),
                end = first + documents_.samples[0][1].size(0);
  changed[0].narrow(0, first, end - first).add_(1).remainder_(kVocab);
  const at::Tensor after = model_->forward_packed(changed, positions);
  EXPECT_TRUE(at::equal(after[0].narrow(0, 0, first), before[0].narrow(0, 0, first)));
  EXPECT_FALSE(at::equal(after[0][first], before[0][first]));
  EXPECT_TRUE(
      at::equal(after[0].narrow(0, end, kLength - end), before[0].narrow(0, end, kLength - end)));
  EXPECT_TRUE(at::equal(after[1], before[1]));
}

TEST_P(PackedDocumentsTest, HaveTheLossAndGradientsOfDocumentsAloneInBf16) {
  const auto loss_of = [&](const std::vector<TensorSpec>& sample, const Batch& batch) {
    const model::Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
    return task(sample)->loss(*model_, batch);
  };
  const at::Tensor alone = loss_of({kTokens, kLengthOf}, documents_.alone());
  const std::vector<at::Tensor> expected = gradients_of(alone);
  const at::Tensor packed = loss_of({kTokens, kPositions}, documents_.packed());
  const std::vector<at::Tensor> gradients = gradients_of(packed);
  EXPECT_NEAR(packed.item<double>(), alone.item<double>(), 0.02 * alone.item<double>());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(gradients[i].scalar_type(), at::kFloat);
    const double norm = expected[i].norm().item<double>();
    EXPECT_LE((gradients[i] - expected[i]).norm().item<double>(), 0.1 * norm) << "parameter " << i;
  }
}

// Positions come from other processes. Those outside of the sample are as the first and the last one.
TEST_P(PackedDocumentsTest, AcceptAnyPositions) {
  const auto loss_with = [&](int64_t after, int64_t before) {
    Batch batch = documents_.packed();
    batch[1] = batch[1].clone();
    batch[1][0][3] = after;
    batch[1][1][5] = before;
    return task({kTokens, kPositions})->loss(*model_, batch).item<double>();
  };
  EXPECT_EQ(loss_with(kLength + 1000, -7), loss_with(kLength - 1, 0));
  EXPECT_NE(loss_with(kLength + 1000, -7), loss_with(3, 5)) << "their own positions";
}

// Labels as for conversations: the loss is the mean over what has a label.
TEST_P(PackedDocumentsTest, HaveNoLossWithoutLabel) {
  const TensorSpec labels_of{"labels", DType::kI64, {kLength}};
  const Batch alone = documents_.alone();
  at::Tensor labels = alone[0].to(at::kLong);
  labels.narrow(1, 0, 6).fill_(-100);
  const at::Tensor loss =
      task({kTokens, kLengthOf, labels_of})->loss(*model_, {alone[0], alone[1], labels});
  double sum = 0;
  int64_t count = 0;
  const at::NoGradGuard no_grad;
  for (const auto& documents : documents_.samples)
    for (const at::Tensor& document : documents) {
      const at::Tensor log_probabilities = model_->forward(document.unsqueeze(0))[0].log_softmax(1);
      for (int64_t i = 6; i < document.size(0); ++i, ++count)
        sum -= log_probabilities[i - 1][document[i].item<int64_t>()].item<double>();
    }
  EXPECT_NEAR(loss.item<double>(), sum / static_cast<double>(count), 1e-5);
  const double nothing = task({kTokens, kLengthOf, labels_of})
                             ->loss(*model_, {alone[0], alone[1], at::full_like(labels, -100)})
                             .item<double>();
  EXPECT_EQ(nothing, 0);
}

TEST_P(PackedDocumentsTest, CountRepliesThatArePredictedCompletely) {
  const TensorSpec labels_of{"labels", DType::kI64, {kLength}};
  const at::NoGradGuard no_grad;
  model_->eval();
  const Batch packed = documents_.packed();
  const at::Tensor predicted =
      model_->forward_packed(documents_.tokens(), packed[1].to(at::kLong)).argmax(2);
  at::Tensor labels = at::full_like(predicted, -100);
  const auto learn = [&](int64_t row, int64_t position, int64_t change) {
    labels[row][position] = predicted[row][position - 1].add(change).remainder(kVocab);
  };
  learn(0, 2, 0), learn(0, 3, 0);  // exact
  learn(0, 5, 0), learn(0, 6, 1);  // not exact
  learn(1, 1, 0);                  // exact, at the start of the next sample
  learn(1, 16, 1);                 // the first token of a document is not predicted
  const auto language_modeling = task({kTokens, kPositions, labels_of});
  const auto evaluation = language_modeling->start_evaluation({});
  evaluation->add(*model_, {packed[0], packed[1], labels});
  evaluation->add(*model_, {packed[0], packed[1], labels});
  const auto report = evaluation->report();
  const std::map<std::string, double> metrics(report.metrics.begin(), report.metrics.end());
  EXPECT_NEAR(metrics.at("exact_match"), 2.0 / 3, 1e-12);
  EXPECT_NEAR(metrics.at("accuracy"), 4.0 / 5, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Models, PackedDocumentsTest, ValuesIn(model_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(UnpackedModelTest, RejectsPackedSamples) {
  auto made =
      model::make_model({.arch = config::LstmLmConfig{.vocab_size = kVocab}}, {kTokens}, kVocab);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const at::Tensor tokens = at::zeros({1, 4}, at::kLong);
  EXPECT_THROW((*made)->forward_packed(tokens, tokens), c10::Error);
}

}  // namespace
}  // namespace stoker::task
