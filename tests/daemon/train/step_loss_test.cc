// The loss and the gradients of a step are those of all its samples together, however they are divided
// into micro-batches and ranks. The expected values are PyTorch's losses of the whole batch.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "daemon/train/train_step.h"
#include "shared/model/caption_model.h"
#include "shared/task/label_loss.h"
#include "shared/task/task.h"

namespace stoker::train {
namespace {

constexpr int64_t kRows = 8, kLength = 6, kOutputs = 5, kWidth = 3, kRowCaptions = 2;
constexpr int64_t kIgnored = task::kIgnoredLabel;

// A linear model: of numbers, or of tokens, one output per step.
class Linear : public model::CaptionModel {
 public:
  explicit Linear(int64_t inputs, int64_t outputs)
      : weight(register_parameter("weight", at::randn({inputs, outputs}).mul(0.5))) {}

  at::Tensor forward(const at::Tensor& input) override {
    if (input.is_floating_point()) return input.matmul(weight);
    return weight.index_select(0, input.flatten()).view({input.size(0), input.size(1), -1});
  }
  at::Tensor forward_packed(const at::Tensor& input, const at::Tensor&) override {
    return forward(input);
  }
  at::Tensor encode(const at::Tensor& images) override { return images.flatten(1).select(1, 0); }
  at::Tensor decode(const at::Tensor& encoded, const at::Tensor& tokens) override {
    return forward(tokens) * encoded.view({-1, 1, 1});
  }
  // Of task custom: the mean over the labels that are not ignored.
  model::StepOutput step(const model::NamedTensors& fields) override {
    const at::Tensor& labels = fields[1].second;
    const at::Tensor count = labels.ne(kIgnored).sum();
    const at::Tensor sum =
        at::cross_entropy_loss(forward(fields[0].second).flatten(0, 1), labels.flatten(), {},
                               at::Reduction::Sum, kIgnored);
    return {.loss = {sum / count.clamp_min(1), count}};
  }
  int64_t counts_per_sample() const override { return own_counts; }

  at::Tensor weight;
  int64_t own_counts = 0;
};

using SampleTensors = std::vector<TensorSpec>;
using Loss = std::function<at::Tensor(Linear&)>;

struct StepCase {
  std::string name;
  config::TaskConfig config;
  SampleTensors sample;
  uint64_t classes = kOutputs;
  int64_t inputs = kWidth, outputs = kOutputs;
  int64_t own_counts = 0;  // of the model's loss
  std::function<task::Batch()> data;
  std::function<at::Tensor(Linear&, const task::Batch&)> expected;  // of all samples, by PyTorch
};

at::Tensor integers(int64_t below, at::IntArrayRef shape) {
  return at::randint(below, shape, at::TensorOptions().dtype(at::kLong));
}

at::Tensor row_lengths() { return at::tensor({6, 2, 3, 6, 1, 4, 2, 5}, at::kLong); }

// Without the values from the length of each row on.
at::Tensor cut(const at::Tensor& values, const at::Tensor& length) {
  return values.masked_fill(at::arange(values.size(1)).unsqueeze(0).ge(length.unsqueeze(1)),
                            kIgnored);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                         const std::optional<at::Tensor>& weights = {}, double smoothing = 0) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.flatten(), weights,
                                at::Reduction::Mean, kIgnored, smoothing);
}

task::Batch labeled() { return {at::randn({kRows, kWidth}), integers(kOutputs, {kRows})}; }

task::Batch labels_of_own_loss() {
  return {at::randn({kRows, kLength, kWidth}),
          cut(integers(kOutputs, {kRows, kLength}), row_lengths())};
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> cases;
  const TensorSpec input{"input", DType::kF32, {kWidth}}, label{"label", DType::kI64, {}};
  const TensorSpec tokens{"tokens", DType::kI32, {kLength}}, length{"length", DType::kI64, {}};
  const TensorSpec labels{"labels", DType::kI64, {kLength}};
  cases.push_back({.name = "classification",
                   .config = {config::ClassificationTask{}},
                   .sample = {input, label},
                   .data = labeled,
                   .expected = [](Linear& model, const task::Batch& batch) {
                     return cross_entropy(model.forward(batch[0]), batch[1]);
                   }});
  const std::vector<double> weights{1, 10, 0.5, 0, 3};
  const auto weight_tensor = [weights] { return at::tensor(weights, at::kFloat); };
  cases.push_back({.name = "class_weights",
                   .config = {config::ClassificationTask{.class_weights = {.values = weights}}},
                   .sample = {input, label},
                   .data = labeled,
                   .expected = [weight_tensor](Linear& model, const task::Batch& batch) {
                     return cross_entropy(model.forward(batch[0]), batch[1], weight_tensor());
                   }});
  // PyTorch adds the losses of the other classes also for a label whose weight is 0, as in a micro-batch of one sample.
  cases.push_back({.name = "class_weights_and_smoothing",
                   .config = {config::ClassificationTask{.label_smoothing = 0.2,
                                                         .class_weights = {.values = weights}}},
                   .sample = {input, label},
                   .data =
                       [] {
                         task::Batch batch = labeled();
                         batch[1].select(0, 0).fill_(3);
                         return batch;
                       },
                   .expected =
                       [weight_tensor](Linear& model, const task::Batch& batch) {
                         return cross_entropy(model.forward(batch[0]), batch[1], weight_tensor(),
                                              0.2);
                       }});
  cases.push_back({.name = "pos_weight",
                   .config = {config::BinaryClassificationTask{.pos_weight = 7}},
                   .sample = {input, label},
                   .classes = 2,
                   .outputs = 1,
                   .data =
                       [] {
                         return task::Batch{at::randn({kRows, kWidth}), integers(2, {kRows})};
                       },
                   .expected =
                       [](Linear& model, const task::Batch& batch) {
                         return at::binary_cross_entropy_with_logits(
                             model.forward(batch[0]).squeeze(1), batch[1].to(at::kFloat), {},
                             at::tensor({7.0}, at::kFloat));
                       }});
  const TensorSpec target{"target", DType::kF32, {kOutputs}};
  cases.push_back({.name = "multilabel",
                   .config = {config::MultilabelClassificationTask{}},
                   .sample = {input, target},
                   .classes = 0,
                   .data =
                       [] {
                         return task::Batch{at::randn({kRows, kWidth}),
                                            integers(2, {kRows, kOutputs}).to(at::kFloat)};
                       },
                   .expected =
                       [](Linear& model, const task::Batch& batch) {
                         return at::binary_cross_entropy_with_logits(model.forward(batch[0]),
                                                                     batch[1]);
                       }});
  cases.push_back(
      {.name = "regression",
       .config = {config::RegressionTask{}},
       .sample = {input, target},
       .classes = 0,
       .data =
           [] {
             return task::Batch{at::randn({kRows, kWidth}), at::randn({kRows, kOutputs})};
           },
       .expected =
           [](Linear& model, const task::Batch& batch) {
             return at::mse_loss(model.forward(batch[0]), batch[1]);
           }});
  const TensorSpec steps{"input", DType::kF32, {kLength, kWidth}};
  const auto labeled_steps = [] {
    const at::Tensor ignored = integers(3, {kRows, kLength}).eq(0);
    return task::Batch{at::randn({kRows, kLength, kWidth}),
                       integers(kOutputs, {kRows, kLength}).masked_fill(ignored, kIgnored),
                       row_lengths()};
  };
  cases.push_back({.name = "sequence_labeling",
                   .config = {config::SequenceLabelingTask{}},
                   .sample = {steps, labels, length},
                   .data = labeled_steps,
                   .expected = [](Linear& model, const task::Batch& batch) {
                     return cross_entropy(model.forward(batch[0]), cut(batch[1], batch[2]));
                   }});
  cases.push_back({.name = "sequence_labeling_class_weights",
                   .config = {config::SequenceLabelingTask{.class_weights = weights}},
                   .sample = {steps, labels, length},
                   .data = labeled_steps,
                   .expected = [weight_tensor](Linear& model, const task::Batch& batch) {
                     return cross_entropy(model.forward(batch[0]), cut(batch[1], batch[2]),
                                          weight_tensor());
                   }});
  cases.push_back(
      {.name = "sequence_labeling_class_weights_and_smoothing",
       .config = {config::SequenceLabelingTask{.label_smoothing = 0.3, .class_weights = weights}},
       .sample = {steps, labels, length},
       .data = labeled_steps,
       .expected = [weight_tensor](Linear& model, const task::Batch& batch) {
         return cross_entropy(model.forward(batch[0]), cut(batch[1], batch[2]), weight_tensor(),
                              0.3);
       }});
  cases.push_back({.name = "own_loss_with_count",
                   .config = {config::CustomTask{}},
                   .sample = {steps, labels},
                   .own_counts = kLength,
                   .data = labels_of_own_loss,
                   .expected = [](Linear& model, const task::Batch& batch) {
                     return cross_entropy(model.forward(batch[0]), batch[1]);
                   }});
  cases.push_back({.name = "ctc",
                   .config = {config::CtcTask{}},
                   .sample = {steps, TensorSpec{"labels", DType::kI64, {2}}},
                   .data =
                       [] {
                         at::Tensor two = integers(kOutputs - 1, {kRows, 2}).add(1);
                         two.select(1, 1).masked_fill_(integers(2, {kRows}).eq(0), kIgnored);
                         return task::Batch{at::randn({kRows, kLength, kWidth}), two};
                       },
                   .expected =
                       [](Linear& model, const task::Batch& batch) {
                         const at::Tensor counts = batch[1].ne(kIgnored).sum(1);
                         return at::ctc_loss(
                             at::log_softmax(model.forward(batch[0]), 2).transpose(0, 1), batch[1],
                             at::full_like(counts, kLength), counts, 0, at::Reduction::Mean);
                       }});
  const auto next_tokens = [](const at::Tensor& values) {
    return values.narrow(1, 1, kLength - 1);
  };
  const auto token_logits = [](Linear& model, const task::Batch& batch) {
    return model.forward(batch[0].narrow(1, 0, kLength - 1).to(at::kLong));
  };
  const auto some_tokens = [] { return integers(kOutputs, {kRows, kLength}).to(at::kInt); };
  cases.push_back({.name = "language_modeling",
                   .config = {config::LanguageModelingTask{}},
                   .sample = {tokens},
                   .inputs = kOutputs,
                   .data = [=] { return task::Batch{some_tokens()}; },
                   .expected =
                       [=](Linear& model, const task::Batch& batch) {
                         return cross_entropy(token_logits(model, batch),
                                              next_tokens(batch[0]).to(at::kLong));
                       }});
  cases.push_back({.name = "language_modeling_padded",
                   .config = {config::LanguageModelingTask{}},
                   .sample = {tokens, length},
                   .inputs = kOutputs,
                   .data =
                       [=] {
                         return task::Batch{some_tokens(), row_lengths()};
                       },
                   .expected =
                       [=](Linear& model, const task::Batch& batch) {
                         return cross_entropy(
                             token_logits(model, batch),
                             cut(next_tokens(batch[0]).to(at::kLong), batch[1] - 1));
                       }});
  cases.push_back({.name = "language_modeling_labels",
                   .config = {config::LanguageModelingTask{}},
                   .sample = {tokens, labels},
                   .inputs = kOutputs,
                   .data =
                       [=] {
                         const at::Tensor ids = some_tokens();
                         return task::Batch{ids, cut(ids.to(at::kLong), row_lengths())};
                       },
                   .expected =
                       [=](Linear& model, const task::Batch& batch) {
                         return cross_entropy(token_logits(model, batch), next_tokens(batch[1]));
                       }});
  cases.push_back(
      {.name = "language_modeling_packed",
       .config = {config::LanguageModelingTask{}},
       .sample = {tokens, TensorSpec{"position_ids", DType::kI32, {kLength}}},
       .inputs = kOutputs,
       .data =
           [=] {  // documents begin at another place in each sample, in the last two at many
             at::Tensor positions = at::arange(kLength).repeat({kRows, 1});
             for (int64_t i = 0; i < kRows; ++i)
               for (int64_t at = 1 + i % 3; at < kLength; at += i < 6 ? kLength : 1)
                 positions[i].narrow(0, at, kLength - at).copy_(at::arange(kLength - at));
             return task::Batch{some_tokens(), positions.to(at::kInt)};
           },
       .expected =
           [=](Linear& model, const task::Batch& batch) {
             const at::Tensor begins = next_tokens(batch[1]).eq(0);
             return cross_entropy(
                 token_logits(model, batch),
                 next_tokens(batch[0]).to(at::kLong).masked_fill(begins, kIgnored));
           }});
  cases.push_back(
      {.name = "captioning",
       .config = {config::CaptioningTask{}},
       .sample = {TensorSpec{"input", DType::kF32, {1, 2, 2}},
                  TensorSpec{"labels", DType::kI64, {kRowCaptions, kLength}},
                  TensorSpec{"references", DType::kU8, {1}}},
       .classes = 0,
       .inputs = kOutputs,
       .data =
           [] {  // a second caption that is empty: there is none
             at::Tensor captions = integers(kOutputs, {kRows, kRowCaptions, kLength});
             captions.select(1, 0).copy_(cut(captions.select(1, 0), row_lengths()));
             captions.select(1, 1).copy_(cut(captions.select(1, 1), row_lengths() / 2));
             return task::Batch{at::rand({kRows, 1, 2, 2}), captions,
                                at::zeros({kRows, 1}, at::kByte)};
           },
       .expected =
           [](Linear& model, const task::Batch& batch) {
             // Each word given the word before it (first the start, 0) and the brightness of the image.
             const at::Tensor words = batch[1].narrow(2, 0, kLength - 1);
             const at::Tensor before =
                 at::constant_pad_nd(words.masked_fill(words.eq(kIgnored), 1), {1, 0}, /*start=*/0);
             const at::Tensor brightness = batch[0].flatten(1).select(1, 0).view({-1, 1, 1, 1});
             const at::Tensor logits = model.weight.index_select(0, before.flatten())
                                           .view({kRows, kRowCaptions, kLength, kOutputs});
             return cross_entropy(logits * brightness, batch[1]);
           }});
  return cases;
}

std::vector<task::Batch> divided(const task::Batch& batch, int64_t count) {
  std::vector<task::Batch> parts(static_cast<size_t>(count));
  for (const at::Tensor& tensor : batch) {
    const auto chunks = tensor.chunk(count);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(chunks[i].clone());
  }
  return parts;
}

struct Step {
  double loss = 0;
  at::Tensor gradient;  // the change by SGD with learning rate 1
};

// Copies of the tensors that ranks sum.
std::vector<at::Tensor> sums_of(const TrainStep& step) {
  std::vector<at::Tensor> sums = step.gradients_to_sum();
  for (const at::Tensor& scalar : step.scalars_to_sum()) sums.push_back(scalar);
  return sums;
}

void add_to(const std::vector<at::Tensor>& sums, const std::vector<at::Tensor>& others) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i].add_(others[i]);
}

class StepLossTest : public ::testing::TestWithParam<StepCase> {
 protected:
  StepLossTest() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(11);
    model_ = std::make_shared<Linear>(GetParam().inputs, GetParam().outputs);
    model_->own_counts = GetParam().own_counts;
    initial_ = model_->weight.detach().clone();
    auto task = task::make_task(GetParam().config, nullptr, GetParam().sample, GetParam().classes);
    EXPECT_TRUE(task.ok()) << task.status().to_string();
    task_ = *std::move(task);
  }

  config::TrainConfig config_of(size_t micro_batches) const {
    config::TrainConfig config;
    config.max_grad_norm.reset();
    config.gradient_accumulation_steps = static_cast<int64_t>(micro_batches);
    config.micro_batch_size = kRows / static_cast<int64_t>(micro_batches);
    return config;
  }
  std::unique_ptr<Optimizer> sgd(const config::TrainConfig& config) const {
    config::OptimizerConfig method;
    method.method = config::SgdConfig{.lr = 1, .momentum = 0, .weight_decay = 0};
    auto made = Optimizer::create(method, config, {{"weight", model_->weight}});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    (*made)->set_lr(1);
    return *std::move(made);
  }

  // In order, by one process; or by ranks with ordered sums, which are simulated one after the other.
  Step train(const std::vector<task::Batch>& micro_batches, size_t ranks = 1) {
    const at::NoGradGuard no_grad;
    model_->weight.copy_(initial_);
    const config::TrainConfig config = config_of(micro_batches.size());
    const auto optimizer = sgd(config);
    const size_t each = micro_batches.size() / ranks;
    std::vector<std::vector<at::Tensor>> of_ranks(ranks);
    std::unique_ptr<TrainStep> step;
    for (size_t rank = ranks; rank-- > 0;) {
      step = std::make_unique<TrainStep>(*model_, *task_, *optimizer, config, nullptr,
                                         static_cast<int64_t>(each));
      for (size_t i = 0; i < each; ++i) {
        {
          const at::AutoGradMode grad(true);
          step->add(micro_batches[rank * each + i], i == 0 || ranks > 1);
        }
        if (ranks > 1) step->add_to_tree(SumTree::level_of(static_cast<int64_t>(i)), i + 1 == each);
      }
      for (const at::Tensor& sum : sums_of(*step)) of_ranks[rank].push_back(sum.clone());
      if (rank > 0) step->drop();
    }
    for (size_t half = ranks / 2; half > 0; half /= 2)  // as ProcessGroup::all_reduce_ordered()
      for (size_t rank = 0; rank < ranks; rank += ranks / half)
        add_to(of_ranks[rank], of_ranks[rank + ranks / half / 2]);
    const std::vector<at::Tensor> own = sums_of(*step);
    for (size_t i = 0; i < own.size(); ++i) own[i].copy_(of_ranks[0][i]);
    step->finish();
    return {step->loss().item<double>(), initial_ - model_->weight.detach()};
  }

  Step expected(const task::Batch& batch) {
    const at::AutoGradMode grad(true);
    Linear model(GetParam().inputs, GetParam().outputs);
    {
      const at::NoGradGuard no_grad;
      model.weight.copy_(initial_);
    }
    const at::Tensor loss = GetParam().expected(model, batch);
    loss.backward();
    return {loss.item<double>(), model.weight.grad()};
  }

  static void expect_near(const Step& step, const Step& expected, const std::string& what) {
    EXPECT_NEAR(step.loss, expected.loss, 1e-5 * expected.loss) << what;
    const double size = expected.gradient.abs().max().item<double>();
    EXPECT_LE((step.gradient - expected.gradient).abs().max().item<double>(), 1e-5 * size) << what;
  }

  std::shared_ptr<Linear> model_;
  at::Tensor initial_;
  std::unique_ptr<task::Task> task_;
};

TEST_P(StepLossTest, IsThatOfAllSamplesTogether) {
  const task::Batch batch = GetParam().data();
  const Step all = expected(batch);
  expect_near(train({batch}), all, "8 x 1");
  for (const int64_t count : {2, 8})
    expect_near(train(divided(batch, count)), all,
                std::to_string(kRows / count) + " x " + std::to_string(count));
  for (const size_t ranks : {2, 4})
    expect_near(train(divided(batch, 8), ranks), all, std::to_string(ranks) + " ranks");
}

TEST_P(StepLossTest, HasSameBytesOnAnyNumberOfRanks) {
  const std::vector<task::Batch> batches = divided(GetParam().data(), 8);
  const Step two = train(batches, 2);
  for (const size_t ranks : {4, 8}) {
    const Step step = train(batches, ranks);
    EXPECT_EQ(step.loss, two.loss) << ranks;
    EXPECT_TRUE(step.gradient.equal(two.gradient)) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Tasks, StepLossTest, ::testing::ValuesIn(step_cases()),
                         [](const auto& tested) { return tested.param.name; });

TEST(OwnLossTest, IsWeightedByItsCountInEvaluation) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  Linear model(kWidth, kOutputs);
  model.own_counts = kLength;
  const SampleTensors sample{{"input", DType::kF32, {kLength, kWidth}},
                             {"labels", DType::kI64, {kLength}}};
  const auto task = *task::make_task({config::CustomTask{}}, nullptr, sample, kOutputs);
  const task::Batch batch = labels_of_own_loss();
  const double expected = cross_entropy(model.forward(batch[0]), batch[1]).item<double>();
  for (const int64_t count : {1, 2, 8}) {
    const auto evaluation = task->start_evaluation({});
    for (const task::Batch& part : divided(batch, count)) evaluation->add(model, part);
    const auto metrics = evaluation->report().metrics;
    ASSERT_EQ(metrics.size(), 1U);
    EXPECT_NEAR(metrics[0].second, expected, 1e-6 * expected) << count;
  }
}

// ---- Without values

class EmptyLossTest : public ::testing::Test {
 protected:
  EmptyLossTest() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(5);
    model_ = std::make_shared<Linear>(kWidth, kOutputs);
    config_.max_grad_norm.reset();
    config_.micro_batch_size = 4;
    const SampleTensors sample{{"input", DType::kF32, {kLength, kWidth}},
                               {"labels", DType::kI64, {kLength}}};
    task_ = *task::make_task({config::SequenceLabelingTask{}}, nullptr, sample, kOutputs);
  }
  task::Batch batch(bool has_labels) const {
    const at::Tensor labels = integers(kOutputs, {4, kLength});
    return {at::randn({4, kLength, kWidth}), has_labels ? labels : labels.fill_(kIgnored)};
  }
  std::unique_ptr<Optimizer> adamw() const {
    auto made = Optimizer::create({}, config_, {{"weight", model_->weight}});
    (*made)->set_lr(0.1);
    return *std::move(made);
  }
  std::string state_of(const Optimizer& optimizer) const {
    std::string bytes;
    NamedTensors tensors = optimizer.state();
    tensors.emplace_back("weight", model_->weight.detach());
    for (const auto& [name, tensor] : tensors)
      bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    return bytes;
  }

  config::TrainConfig config_;
  std::shared_ptr<Linear> model_;
  std::unique_ptr<task::Task> task_;
};

TEST_F(EmptyLossTest, StepWithoutLabelsChangesNothing) {
  for (const int64_t micro_batches : {1, 2}) {
    config_.gradient_accumulation_steps = micro_batches;
    const auto optimizer = adamw();
    TrainStep step(*model_, *task_, *optimizer, config_);
    const auto train = [&](bool has_labels) {
      for (int64_t i = 0; i < micro_batches; ++i) step.add(batch(has_labels), i == 0);
      step.finish();
    };
    train(true);  // so that there is momentum
    const std::string before = state_of(*optimizer);
    train(false);
    EXPECT_TRUE(state_of(*optimizer) == before) << micro_batches;
    EXPECT_EQ(step.loss().item<double>(), 0);
    EXPECT_EQ(optimizer->skipped().item<double>(), 1);
    for (int64_t i = 0; i < micro_batches; ++i) step.add(batch(false), i == 0);
    step.finish_if_finite(/*and_loss=*/true);
    EXPECT_TRUE(state_of(*optimizer) == before) << micro_batches;
    train(true);
    EXPECT_FALSE(state_of(*optimizer) == before) << micro_batches;
    EXPECT_FALSE(optimizer->skipped().defined());
  }
}

// Label smoothing gives other classes a part of these labels, but the loss would be divided by 0.
TEST_F(EmptyLossTest, StepOfLabelsWithoutWeightHasNoLoss) {
  const SampleTensors sample{{"input", DType::kF32, {kLength, kWidth}},
                             {"labels", DType::kI64, {kLength}}};
  std::vector<double> weights(kOutputs, 1.5);
  weights[0] = 0;
  task_ = *task::make_task(
      {config::SequenceLabelingTask{.label_smoothing = 0.3, .class_weights = weights}}, nullptr,
      sample, kOutputs);
  for (const int64_t micro_batches : {1, 2}) {
    config_.gradient_accumulation_steps = micro_batches;
    const auto optimizer = adamw();
    TrainStep step(*model_, *task_, *optimizer, config_);
    for (int64_t i = 0; i < micro_batches; ++i) {
      const task::Batch labeled = batch(true);
      labeled.back().zero_();
      step.add(labeled, i == 0);
    }
    step.finish();
    EXPECT_EQ(step.loss().item<double>(), 0) << micro_batches;
  }
}

TEST_F(EmptyLossTest, MicroBatchWithoutLabelsContributesNothing) {
  const task::Batch labeled = batch(true);
  const auto loss_of = [&](const std::vector<task::Batch>& batches) {
    config_.gradient_accumulation_steps = std::ssize(batches);
    const auto optimizer = adamw();
    TrainStep step(*model_, *task_, *optimizer, config_);
    for (const task::Batch& each : batches) step.add(each, &each == batches.data());
    step.scale_by_count();
    return std::pair(step.loss().item<double>(), model_->weight.grad().clone());
  };
  const auto [alone, gradient] = loss_of({labeled});
  const auto [loss, with_empty] = loss_of({batch(false), labeled, batch(false)});
  EXPECT_NEAR(loss, alone, 1e-6 * alone);
  EXPECT_LE((with_empty - gradient).abs().max().item<double>(),
            1e-6 * gradient.abs().max().item<double>());
}

// ---- Parameters that a step does not use

// `extra` is used only by a batch whose first number is positive.
class Branching final : public Linear {
 public:
  Branching()
      : Linear(kWidth, kOutputs),
        extra(register_parameter("extra", at::randn({kWidth, kOutputs}))) {}

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor logits = Linear::forward(input);
    return input[0][0].item<double>() > 0 ? logits + input.matmul(extra) : logits;
  }

  at::Tensor extra;
};

// With AdamW, whose decay alone would change the weight. As torch.optim.AdamW, which skips a parameter whose grad is None.
TEST(UnusedParameterTest, KeepsValueAndStateUnlessAnyMicroBatchUsesIt) {
  for (const int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    Branching model;
    auto task =
        task::make_task({config::ClassificationTask{}}, nullptr,
                        {{"input", DType::kF32, {kWidth}}, {"label", DType::kI64, {}}}, kOutputs);
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    config::TrainConfig config;
    config.gradient_accumulation_steps = accumulation;
    config.micro_batch_size = 2;
    auto optimizer = Optimizer::create({.method = config::AdamWConfig{.weight_decay = 0.1}}, config,
                                       {{"weight", model.weight}, {"extra", model.extra}});
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    (*optimizer)->set_lr(0.1);
    TrainStep step(model, **task, **optimizer, config);
    const auto train = [&](const std::vector<bool>& uses_extra) {
      for (size_t i = 0; i < uses_extra.size(); ++i) {
        const at::Tensor input = at::rand({2, kWidth}).add(0.5);
        step.add({uses_extra[i] ? input : -input, integers(kOutputs, {2})}, i == 0);
      }
      step.finish();
    };
    const at::Tensor extra = model.extra.detach().clone();
    at::Tensor weight = model.weight.detach().clone();
    train(std::vector<bool>(static_cast<size_t>(accumulation), false));
    EXPECT_TRUE(at::equal(model.extra, extra));
    EXPECT_FALSE(at::equal(model.weight, weight));
    for (const auto& [name, tensor] : (*optimizer)->state())
      EXPECT_EQ(tensor.abs().sum().item<double>() > 0, name.ends_with(".weight")) << name;
    std::vector<bool> one(static_cast<size_t>(accumulation), false);
    one.back() = true;
    weight = model.weight.detach().clone();
    train(one);
    EXPECT_FALSE(at::equal(model.extra, extra));
    EXPECT_FALSE(at::equal(model.weight, weight));
    for (const auto& [name, tensor] : (*optimizer)->state()) {
      if (name != "step.extra") continue;
      EXPECT_EQ(tensor.item<double>(), 1);
    }
  }
}

}  // namespace
}  // namespace stoker::train
