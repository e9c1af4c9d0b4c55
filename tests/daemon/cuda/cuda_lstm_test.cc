// LSTM layers on a CUDA device, where LibTorch uses cuDNN. Skipped if there is no device.
#include <mutex>

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/rnn.h>

#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "shared/model/autocast.h"
#include "shared/model/lstm_layers.h"

namespace stoker::train {
namespace {

class CudaLstmTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    prepare_environment({.deterministic = true});  // before CUDA is loaded
    device_ = open_device({.type = config::DeviceConfig::Type::kCuda, .index = {}});
  }
  void SetUp() override {
    if (!device_.ok()) GTEST_SKIP() << device_.status().message();
    EXPECT_TRUE(configure_numerics({.deterministic = true}, {}).ok());
    at::manual_seed(3);
  }
  void TearDown() override { EXPECT_TRUE(configure_numerics({}, {}).ok()); }

  static torch::nn::LSTM make_lstm(double dropout) {
    torch::nn::LSTM lstm(
        torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(dropout).batch_first(true).bidirectional(
            true));
    lstm->to(*device_);
    return lstm;
  }

  static inline Result<c10::Device> device_ = Status(StatusCode::kNotFound, "not initialized");
};

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}
void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

// Up to the last bits, which cuDNN does not promise.
bool are_close(const at::Tensor& actual, const at::Tensor& expected) {
  const double scale = expected.abs().max().item<double>();
  return at::allclose(actual, expected, /*rtol=*/0, /*atol=*/1e-4 * scale);
}

TEST_F(CudaLstmTest, SamplesDropoutFromGeneratorOfCheckpoints) {
  const auto streams = (*load_cuda_module())->open_streams(device_->index());
  torch::nn::LSTM lstm = make_lstm(0.5);
  const at::Tensor input = at::randn({4, 6, 8}).to(*device_);
  const at::Generator generator = at::globalContext().defaultGenerator(*device_);
  (void)model::run_lstm(lstm, input);
  const at::Tensor state = state_of(generator);
  const at::Tensor expected = model::run_lstm(lstm, input).steps.detach();
  set_state(generator, state);
  EXPECT_TRUE(are_close(model::run_lstm(lstm, input).steps, expected));
  EXPECT_FALSE(are_close(model::run_lstm(lstm, input).steps, expected));
  // As before a step that has its own seed. The host does not wait for the device.
  set_state(generator, state);
  const at::Tensor output = at::empty_like(expected);
  const auto graph =
      streams->capture([&] { output.copy_(model::run_lstm(lstm, input).steps.detach()); });
  graph->replay();
  EXPECT_TRUE(are_close(output, expected));
  graph->replay();
  EXPECT_FALSE(are_close(output, expected));
}

// Not in FP16, in which these gradients are 0.
TEST_F(CudaLstmTest, ComputesInF32UnderAutocastToBf16) {
  torch::nn::LSTM lstm = make_lstm(0);
  const at::Tensor input = at::randn({4, 6, 8}).to(*device_).to(at::kBFloat16);
  const at::Tensor length = at::tensor({6, 1, 3, 5}, at::kLong).to(*device_);
  const auto run = [&](const at::Tensor& lengths) {
    const at::Tensor steps = model::run_lstm(lstm, input.to(at::kFloat), lengths).steps;
    (steps * 1e-9).sum().backward();
    const at::Tensor gradient = lstm->all_weights()[0].grad().clone();
    lstm->zero_grad();
    return std::pair(steps.detach(), gradient);
  };
  for (const at::Tensor& lengths : {at::Tensor(), length}) {
    const auto [expected, expected_gradient] = run(lengths);
    const model::Autocast autocast(at::kBFloat16, device_->type());
    const auto [steps, gradient] = run(lengths);
    EXPECT_EQ(steps.scalar_type(), at::kFloat);
    EXPECT_TRUE(are_close(steps, expected));
    EXPECT_TRUE(are_close(gradient, expected_gradient));
    EXPECT_GT(gradient.abs().max().item<float>(), 0);
  }
}

}  // namespace
}  // namespace stoker::train
