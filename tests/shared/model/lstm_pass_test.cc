// lstm_pass() returns the same states and gradients as LibTorch's LSTM.
#include "shared/model/lstm_pass.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"

namespace stoker::model {
namespace {

struct Size {
  int64_t time, batch, features, hidden, directions;
  int threads;
};
void PrintTo(const Size& size, std::ostream* out) {
  *out << size.time << " steps of " << size.batch << " x " << size.features << " to " << size.hidden
       << ", " << size.directions << " directions, " << size.threads << " threads";
}

struct Outcome {
  at::Tensor output, d_input;
  std::vector<at::Tensor> d_weights;
};

class LstmPassTest : public testing::TestWithParam<Size> {
 protected:
  void SetUp() override {
    const Size& size = GetParam();
    at::set_num_threads(size.threads);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(11);
    // Batch first, as in the ring.
    input_ = at::randn({size.batch, size.time, size.features}).requires_grad_();
    d_output_ = at::randn({size.time, size.batch, size.directions * size.hidden});
    for (int64_t i = 0; i < size.directions; ++i)
      for (const auto& shape : std::vector<std::vector<int64_t>>{{4 * size.hidden, size.features},
                                                                 {4 * size.hidden, size.hidden},
                                                                 {4 * size.hidden},
                                                                 {4 * size.hidden}})
        weights_.push_back(at::randn(shape).requires_grad_());
  }

  Outcome backward(const at::Tensor& output) const {
    output.backward(d_output_);
    Outcome outcome{output.detach(), input_.grad().clone(), {}};
    input_.mutable_grad() = at::Tensor();
    for (const at::Tensor& weight : weights_) {
      outcome.d_weights.push_back(weight.grad().clone());
      weight.mutable_grad() = at::Tensor();
    }
    return outcome;
  }
  at::Tensor run_ours() const {
    std::vector<LstmWeights> directions;
    for (size_t i = 0; i < weights_.size(); i += 4)
      directions.push_back({weights_[i], weights_[i + 1], weights_[i + 2], weights_[i + 3]});
    return lstm_pass(input_.transpose(0, 1), directions);
  }
  at::Tensor run_theirs() const {
    const Size& size = GetParam();
    const at::Tensor zeros = at::zeros({size.directions, size.batch, size.hidden});
    return std::get<0>(at::lstm(input_.transpose(0, 1), {zeros, zeros}, weights_, true, 1, 0.0,
                                true, size.directions == 2, false));
  }
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
    ASSERT_EQ(actual.sizes(), expected.sizes());
    const double scale = expected.abs().max().item<double>();
    EXPECT_LE(actual.sub(expected).abs().max().item<double>(), 1e-5 * scale + 1e-9);
  }

  at::Tensor input_, d_output_;
  std::vector<at::Tensor> weights_;
};

TEST_P(LstmPassTest, MatchesLibTorchStatesAndGradients) {
  const Outcome ours = backward(run_ours()), theirs = backward(run_theirs());
  expect_close(ours.output, theirs.output);
  expect_close(ours.d_input, theirs.d_input);
  for (size_t i = 0; i < weights_.size(); ++i) expect_close(ours.d_weights[i], theirs.d_weights[i]);
}

TEST_P(LstmPassTest, ComputesSameBytesOnRepeatedRuns) {
  const Outcome once = backward(run_ours()), again = backward(run_ours());
  EXPECT_TRUE(at::equal(once.output, again.output));
  EXPECT_TRUE(at::equal(once.d_input, again.d_input));
  for (size_t i = 0; i < weights_.size(); ++i)
    EXPECT_TRUE(at::equal(once.d_weights[i], again.d_weights[i])) << i;
}

TEST_P(LstmPassTest, RejectsSecondBackward) {
  const at::Tensor output = run_ours();
  output.backward(d_output_, /*retain_graph=*/true);
  EXPECT_THROW(output.backward(d_output_), c10::Error);
}

TEST_P(LstmPassTest, ComputesSameOutputWithoutGradients) {
  const at::Tensor recorded = run_ours();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(run_ours(), recorded.detach()));
}

// One step and one sample; sizes that are no multiple of a vector register; many steps per product;
// batch parts of different sizes; one direction.
INSTANTIATE_TEST_SUITE_P(Sizes, LstmPassTest,
                         testing::Values(Size{1, 1, 1, 1, 1, 1}, Size{1, 3, 5, 7, 2, 1},
                                         Size{9, 2, 5, 13, 2, 2}, Size{300, 3, 4, 8, 2, 1},
                                         Size{5, 150, 11, 16, 2, 4}, Size{6, 131, 3, 9, 1, 2},
                                         Size{40, 64, 16, 24, 2, 2}));

// Without oneDNN, LibTorch computes the products, and autocast would lower their precision.
TEST(LstmPassWithoutOnednnTest, MatchesLibTorchInFloat32AlsoUnderAutocast) {
  at::globalContext().setUserEnabledMkldnn(false);
  at::set_num_threads(1);
  const at::Tensor input = at::randn({4, 3, 2}), zeros = at::zeros({1, 3, 5});
  const LstmWeights weights{at::randn({20, 2}), at::randn({20, 5}), at::randn({20}),
                            at::randn({20})};
  const at::Tensor theirs =
      std::get<0>(at::lstm(input, {zeros, zeros},
                           {weights.weight_ih, weights.weight_hh, weights.bias_ih, weights.bias_hh},
                           true, 1, 0.0, true, false, false));
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const at::Tensor ours = lstm_pass(input, {weights});
  EXPECT_EQ(ours.scalar_type(), at::kFloat);
  EXPECT_LE(ours.sub(theirs).abs().max().item<double>(), 1e-5);
  at::globalContext().setUserEnabledMkldnn(true);
}

TEST(LstmPassSaturationTest, ProducesFiniteValuesWithSaturatedGates) {
  at::set_num_threads(1);
  const at::Tensor input = at::randn({4, 3, 2}).mul(1e4);
  const LstmWeights weights{at::randn({12, 2}).requires_grad_(), at::randn({12, 3}),
                            at::zeros({12}), at::zeros({12})};
  const at::Tensor output = lstm_pass(input, {weights});
  output.sum().backward();
  EXPECT_LE(output.abs().max().item<double>(), 1.0);
  EXPECT_TRUE(weights.weight_ih.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace stoker::model
