// Both implementations of an LSTM over padded sequences return the same states and gradients as
// LibTorch does for packed sequences, and that of other devices also without padding.
#include <functional>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/rnn.h>

#include "shared/model/autocast.h"
#include "shared/model/lstm_layers.h"

namespace stoker::model {
namespace {

using Way = std::function<LstmStates(torch::nn::LSTM&, const at::Tensor&, const at::Tensor&)>;

struct LstmSize {
  int64_t time, batch, features, hidden, layers;
  bool is_bidirectional;
  int threads;
};
void PrintTo(const LstmSize& size, std::ostream* out) {
  *out << size.layers << " layers, " << size.time << " steps of " << size.batch << " x "
       << size.features << " to " << size.hidden << (size.is_bidirectional ? " both ways" : "")
       << ", " << size.threads << " threads";
}

LstmStates run_packed(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length) {
  namespace rnn = torch::nn::utils::rnn;
  const auto packed = rnn::pack_padded_sequence(input, length, /*batch_first=*/true,
                                                /*enforce_sorted=*/false);
  const auto [states, last] = lstm->forward_with_packed_input(packed);
  const at::Tensor steps =
      std::get<0>(rnn::pad_packed_sequence(states, /*batch_first=*/true, 0.0, input.size(1)));
  const int64_t directions = lstm->options_base.bidirectional() ? 2 : 1;
  return {steps, std::get<0>(last).slice(0, -directions).transpose(0, 1).flatten(1)};
}

LstmStates run_ours(torch::nn::LSTM& lstm, const at::Tensor& input, const at::Tensor& length) {
  return run_lstm(lstm, input, length);
}

struct PaddedOutcome {
  at::Tensor steps, last;
  std::vector<at::Tensor> gradients;  // of the input, then of the weights
};

class PaddedLstmTest : public testing::TestWithParam<LstmSize> {
 protected:
  void SetUp() override {
    const LstmSize& size = GetParam();
    at::set_num_threads(size.threads);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(5);
    lstm_ = torch::nn::LSTM(torch::nn::LSTMOptions(size.features, size.hidden)
                                .num_layers(size.layers)
                                .batch_first(true)
                                .bidirectional(size.is_bidirectional));
    input_ = at::randn({size.batch, size.time, size.features});
    length_ = at::randint(1, size.time + 1, {size.batch}, at::kLong);
    length_[0].fill_(size.time);
    if (size.batch > 1) length_[1].fill_(1);
    const int64_t wide = size.hidden * (size.is_bidirectional ? 2 : 1);
    d_steps_ = at::randn({size.batch, size.time, wide});
    d_last_ = at::randn({size.batch, wide});
  }

  PaddedOutcome run(const Way& way, const at::Tensor& input) {
    const at::Tensor given = input.clone().requires_grad_();
    const LstmStates states = way(lstm_, given, length_);
    ((states.steps * d_steps_).sum() + (states.last * d_last_).sum()).backward();
    PaddedOutcome outcome{states.steps.detach(), states.last.detach(), {given.grad().clone()}};
    for (const at::Tensor& weight : lstm_->all_weights()) {
      outcome.gradients.push_back(weight.grad().clone());
      weight.mutable_grad() = at::Tensor();
    }
    return outcome;
  }
  // bool [batch, time, 1]
  at::Tensor is_padding() const {
    return at::arange(GetParam().time).unsqueeze(0).ge(length_.unsqueeze(1)).unsqueeze(2);
  }
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    const double scale = expected.abs().max().item<double>();
    EXPECT_LE(actual.sub(expected).abs().max().item<double>(), 1e-5 * scale + 1e-9);
  }
  static void expect_close(const PaddedOutcome& actual, const PaddedOutcome& expected) {
    expect_close(actual.steps, expected.steps);
    expect_close(actual.last, expected.last);
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (size_t i = 0; i < actual.gradients.size(); ++i)
      expect_close(actual.gradients[i], expected.gradients[i]);
  }

  torch::nn::LSTM lstm_{nullptr};
  at::Tensor input_, length_, d_steps_, d_last_;
};

TEST_P(PaddedLstmTest, MatchesStatesAndGradientsOfPackedSequences) {
  expect_close(run(run_ours, input_), run(run_packed, input_));
}

TEST_P(PaddedLstmTest, MatchesPackedSequencesWithPortableImplementation) {
  expect_close(run(run_lstm_by_layers, input_), run(run_packed, input_));
}

TEST_P(PaddedLstmTest, ProducesZerosAndZeroGradientsAtPadding) {
  for (const Way& way : {Way(run_ours), Way(run_lstm_by_layers)}) {
    const PaddedOutcome outcome = run(way, input_);
    const at::Tensor padding = is_padding().to(at::kFloat);
    EXPECT_EQ((outcome.steps * padding).abs().max().item<double>(), 0);
    EXPECT_EQ((outcome.gradients[0] * padding).abs().max().item<double>(), 0);
  }
}

TEST_P(PaddedLstmTest, IgnoresValuesInPadding) {
  const at::Tensor other = at::where(is_padding(), at::randn_like(input_).mul(1e3), input_);
  for (const Way& way : {Way(run_ours), Way(run_lstm_by_layers)}) {
    const PaddedOutcome plain = run(way, input_), changed = run(way, other);
    EXPECT_TRUE(at::equal(changed.steps, plain.steps));
    EXPECT_TRUE(at::equal(changed.last, plain.last));
    for (size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_TRUE(at::equal(changed.gradients[i], plain.gradients[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, PaddedLstmTest,
    testing::Values(LstmSize{1, 1, 2, 3, 1, true, 1}, LstmSize{7, 4, 5, 6, 1, true, 1},
                    LstmSize{7, 4, 5, 6, 2, true, 2}, LstmSize{9, 3, 4, 5, 2, false, 1},
                    LstmSize{5, 150, 3, 8, 1, true, 4}, LstmSize{40, 64, 16, 24, 2, true, 2}));

TEST(PaddedLstmLengthTest, ReturnsZeroStatesForEmptySequence) {
  at::set_num_threads(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).batch_first(true).bidirectional(true));
  const at::Tensor input = at::randn({2, 5, 3}), length = at::tensor({0, 3}, at::kLong);
  for (const Way& way : {Way(run_ours), Way(run_lstm_by_layers)}) {
    const LstmStates states = way(lstm, input, length);
    EXPECT_EQ(states.steps[0].abs().max().item<double>(), 0);
    EXPECT_EQ(states.last[0].abs().max().item<double>(), 0);
    EXPECT_GT(states.last[1].abs().max().item<double>(), 0);
    states.last.sum().backward();
    for (const at::Tensor& weight : lstm->all_weights())
      EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
  }
}

// In F64, the CPU uses the implementation of other devices. Of LibTorch, the dropout between layers is that
// of the default generator on the CPU only.
TEST(LstmDropoutTest, IsThatOfDefaultGenerator) {
  at::set_num_threads(1);
  for (const bool is_bidirectional : {false, true}) {
    torch::nn::LSTM lstm(
        torch::nn::LSTMOptions(3, 4).num_layers(3).dropout(0.5).batch_first(true).bidirectional(
            is_bidirectional));
    lstm->to(at::kDouble);
    const at::Tensor input = at::randn({2, 5, 3}, at::kDouble);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(7);
    const LstmStates states = run_lstm(lstm, input);
    generator.set_current_seed(7);
    const auto [steps, last] = lstm->forward(input);
    EXPECT_TRUE(at::allclose(states.steps, steps, 0, 1e-12));
    const int64_t directions = is_bidirectional ? 2 : 1;
    EXPECT_TRUE(at::allclose(
        states.last, std::get<0>(last).slice(0, -directions).transpose(0, 1).flatten(1), 0, 1e-12));
    EXPECT_FALSE(at::equal(run_lstm(lstm, input).steps, states.steps));
  }
}

TEST(LstmAutocastTest, ComputesInF32UnderAutocastToBf16) {
  at::set_num_threads(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).batch_first(true));
  const at::Tensor input = at::randn({2, 5, 3}).to(at::kBFloat16);
  for (const at::Tensor& length : {at::Tensor(), at::tensor({5, 2}, at::kLong)}) {
    const at::Tensor expected = run_lstm_by_layers(lstm, input.to(at::kFloat), length).steps;
    const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
    const at::Tensor steps = run_lstm_by_layers(lstm, input, length).steps;
    EXPECT_EQ(steps.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(steps, expected));
    EXPECT_EQ(
        at::linear(steps, lstm->all_weights()[0].slice(1, 0, 1).expand({16, 4})).scalar_type(),
        at::kBFloat16)
        << "autocast must be on again";
  }
}

}  // namespace
}  // namespace stoker::model
