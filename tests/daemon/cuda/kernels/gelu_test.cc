#include "shared/model/gelu.h"

#include <cstdint>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"
#include "tests/daemon/cuda/kernels/host_kernels_scope.h"

namespace stoker::model {
namespace {

constexpr GeluForm kForms[] = {GeluForm::kExact, GeluForm::kTanh};

at::Tensor leaf_in_f64(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).requires_grad_();
}

at::Tensor gelu_in_f64(const at::Tensor& x, GeluForm form) {
  return at::gelu(x, form == GeluForm::kTanh ? "tanh" : "none");
}

// Rounded once to BF16; F32 loses digits where GELU is nearly 0.
void expect_rounded_once(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor error = (actual.to(at::kDouble) - expected).abs();
  EXPECT_TRUE(error.le(expected.abs() / 256 * 1.01 + 2e-5).all().item<bool>())
      << error.max().item<double>();
}

void expect_close_norm(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  EXPECT_LE((actual.to(at::kDouble) - expected).norm().item<double>(),
            tolerance * expected.norm().item<double>());
}

// An output of a kernel, and memory after it that the kernel must not write.
class Output {
 public:
  Output(int64_t rows, int64_t width, at::ScalarType dtype)
      : memory_(at::full({rows * width + kAfter}, kUntouched, dtype)),
        values_(memory_.narrow(0, 0, rows * width).view({rows, width})) {}

  const at::Tensor& values() const { return values_; }
  bool is_intact() const {
    return memory_.narrow(0, values_.numel(), kAfter).eq(kUntouched).all().item<bool>();
  }

 private:
  static constexpr int64_t kAfter = 64;
  static constexpr double kUntouched = -77;
  const at::Tensor memory_, values_;
};

class GeluKernelTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(19); }
};

void expect_like_libtorch(int64_t rows, int64_t width, int64_t parts, GeluForm form) {
  const at::Tensor x = (at::randn({rows, width}) * 3).to(at::kBFloat16), bias = at::randn({width});
  const at::Tensor gradient = at::randn({rows, width}).to(at::kBFloat16);
  const at::Tensor x64 = leaf_in_f64(x), bias64 = leaf_in_f64(bias);
  const at::Tensor wanted = gelu_in_f64(x64 + bias64, form);
  wanted.backward(gradient.to(at::kDouble));
  const Output output(rows, width, at::kBFloat16), of_x(rows, width, at::kBFloat16),
      of_bias(parts, width, at::kFloat);
  cuda::host_kernels().gelu({.x = kernel_pointer<Bf16>(x),
                             .bias = kernel_pointer(bias),
                             .output = kernel_pointer<Bf16>(output.values()),
                             .rows = rows,
                             .width = width,
                             .is_tanh = form == GeluForm::kTanh});
  cuda::host_kernels().gelu_backward({.x = kernel_pointer<Bf16>(x),
                                      .bias = kernel_pointer(bias),
                                      .output_gradient = kernel_pointer<Bf16>(gradient),
                                      .x_gradient = kernel_pointer<Bf16>(of_x.values()),
                                      .maybe_bias_gradients = kernel_pointer(of_bias.values()),
                                      .rows = rows,
                                      .width = width,
                                      .parts = parts,
                                      .is_tanh = form == GeluForm::kTanh});
  expect_rounded_once(output.values(), wanted);
  expect_rounded_once(of_x.values(), x64.grad());
  const at::Tensor error = (of_bias.values().sum(0).to(at::kDouble) - bias64.grad()).abs();
  EXPECT_LE(error.max().item<double>(), 1e-5 * (1 + static_cast<double>(rows)));
  EXPECT_TRUE(output.is_intact() && of_x.is_intact() && of_bias.is_intact());
}

// Around vectors, the columns and the rows of a block.
TEST_F(GeluKernelTest, MatchesLibTorchForAnySize) {
  for (const GeluForm form : kForms) {
    for (const int64_t width : {1, 7, 8, 9, 24, 100, 1016, 1023, 1024, 1025, 1032, 2049, 3072}) {
      for (const int64_t rows : {1, 2, 7, 8, 9, 33}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width << ", form " << int(form));
        expect_like_libtorch(rows, width, 1, form);
      }
    }
  }
}

// Also the parts at the end that have fewer rows, or none.
TEST_F(GeluKernelTest, SumsGradientsOfTheBiasInAnyNumberOfParts) {
  for (const int64_t width : {12, 1032}) {
    for (const int64_t rows : {1, 31, 32, 33, 65}) {
      for (const int64_t parts : {1, 2, 3, 8, 33}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width << " in " << parts << " parts");
        expect_like_libtorch(rows, width, parts, GeluForm::kExact);
      }
    }
  }
}

TEST_F(GeluKernelTest, SaturatesForLargeValues) {
  const at::Tensor x = at::randn({4, 16}).mul(1e4).to(at::kBFloat16), bias = at::randn({16});
  const at::Tensor output = at::empty_like(x), gradient = at::full({4, 16}, 2, at::kBFloat16),
                   of_x = at::empty_like(x);
  for (const GeluForm form : kForms) {
    cuda::host_kernels().gelu({.x = kernel_pointer<Bf16>(x),
                               .bias = kernel_pointer(bias),
                               .output = kernel_pointer<Bf16>(output),
                               .rows = 4,
                               .width = 16,
                               .is_tanh = form == GeluForm::kTanh});
    expect_rounded_once(output, (x.to(at::kDouble) + bias).clamp_min(0));
    cuda::host_kernels().gelu_backward({.x = kernel_pointer<Bf16>(x),
                                        .bias = kernel_pointer(bias),
                                        .output_gradient = kernel_pointer<Bf16>(gradient),
                                        .x_gradient = kernel_pointer<Bf16>(of_x),
                                        .maybe_bias_gradients = nullptr,
                                        .rows = 4,
                                        .width = 16,
                                        .parts = 1,
                                        .is_tanh = form == GeluForm::kTanh});
    expect_rounded_once(of_x, (x.to(at::kDouble) + bias).gt(0).to(at::kDouble) * 2);
  }
}

struct GeluCalls {
  int forward = 0, backward = 0, bias_gradients = 0;
} counted;

class LinearGeluTest : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(23);
    counted = {};
    KernelTable table = cuda::host_kernels();
    table.gelu = [](const GeluRows& rows) {
      ++counted.forward;
      cuda::host_kernels().gelu(rows);
    };
    table.gelu_backward = [](const GeluGradients& gradients) {
      ++counted.backward;
      if (gradients.maybe_bias_gradients != nullptr) ++counted.bias_gradients;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(gradients.output_gradient) % 16, 0u);
      cuda::host_kernels().gelu_backward(gradients);
    };
    use_fused_kernels(c10::DeviceType::CPU, table);
  }

  const cuda::HostKernelsScope kernels_;
};

torch::nn::Linear layer_of(int64_t inputs, int64_t outputs, bool has_bias = true) {
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(has_bias));
}

TEST_F(LinearGeluTest, MatchesLibTorchForBothForms) {
  for (const GeluForm form : kForms) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 24}, {3, 37, 24}}) {
      counted = {};
      const auto layer = layer_of(24, 40);
      const at::Tensor input = at::randn(shape).requires_grad_(), input64 = leaf_in_f64(input);
      const at::Tensor weight64 = leaf_in_f64(layer->weight), bias64 = leaf_in_f64(layer->bias);
      const at::Tensor wanted = gelu_in_f64(at::linear(input64, weight64, bias64), form);
      const at::Tensor factor = at::randn(wanted.sizes()).to(at::kBFloat16);
      wanted.backward(factor.to(at::kDouble));
      const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
      const at::Tensor output = linear_gelu(layer, input, form);
      ASSERT_EQ(output.scalar_type(), at::kBFloat16);
      output.backward(factor);
      expect_close_norm(output, wanted, 0.01);
      expect_close_norm(input.grad(), input64.grad(), 0.01);
      expect_close_norm(layer->weight.grad(), weight64.grad(), 0.01);
      expect_close_norm(layer->bias.grad(), bias64.grad(), 0.003);
      EXPECT_EQ(counted.forward, 1);
      EXPECT_EQ(counted.bias_gradients, 1);
    }
  }
}

TEST_F(LinearGeluTest, ComputesOnlyGradientsThatAreNeeded) {
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const auto layer = layer_of(16, 32);
  const at::Tensor input = at::randn({4, 16});
  layer->bias.set_requires_grad(false);
  linear_gelu(layer, input, GeluForm::kTanh).sum().backward();
  EXPECT_FALSE(layer->bias.grad().defined());
  EXPECT_TRUE(layer->weight.grad().defined());
  EXPECT_EQ(counted.backward, 1);
  EXPECT_EQ(counted.bias_gradients, 0);
  // Of the bias alone, as when all else is frozen.
  const auto other = layer_of(16, 32);
  other->weight.set_requires_grad(false);
  linear_gelu(other, input, GeluForm::kTanh).sum().backward();
  EXPECT_FALSE(other->weight.grad().defined());
  const at::Tensor x = at::linear(input, other->weight).detach();  // in BF16
  const at::Tensor bias64 = leaf_in_f64(other->bias);
  gelu_in_f64(x.to(at::kDouble) + bias64, GeluForm::kTanh).sum().backward();
  expect_close_norm(other->bias.grad(), bias64.grad(), 1e-5);
}

TEST_F(LinearGeluTest, NeedsNoGradient) {
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const auto layer = layer_of(16, 32);
  const at::Tensor input = at::randn({4, 16});
  const at::Tensor trained = linear_gelu(layer, input, GeluForm::kExact);
  const at::NoGradGuard no_grad;
  const at::Tensor evaluated = linear_gelu(layer, input, GeluForm::kExact);
  EXPECT_FALSE(evaluated.requires_grad());
  EXPECT_TRUE(at::equal(evaluated, trained));
  EXPECT_EQ(counted.forward, 2);
}

TEST_F(LinearGeluTest, CopiesGradientThatVectorsCannotRead) {
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  const auto layer = layer_of(16, 32);
  const at::Tensor input = at::randn({2, 16}).requires_grad_();
  const at::Tensor factor = at::randn({65}).to(at::kBFloat16).narrow(0, 1, 64).view({2, 32});
  linear_gelu(layer, input, GeluForm::kExact).backward(factor);
  const at::Tensor of_bias = layer->bias.grad().clone();
  layer->bias.mutable_grad() = at::Tensor();
  linear_gelu(layer, input, GeluForm::kExact).backward(factor.clone());
  EXPECT_EQ(counted.backward, 2);
  EXPECT_TRUE(at::equal(layer->bias.grad(), of_bias));
}

TEST_F(LinearGeluTest, UsesLibTorchForOtherInputs) {
  const auto layer = layer_of(16, 32), without_bias = layer_of(16, 32, /*has_bias=*/false);
  const at::Tensor input = at::randn({4, 16});
  EXPECT_EQ(linear_gelu(layer, input, GeluForm::kTanh).scalar_type(), at::kFloat);
  {
    const Autocast half(at::kHalf, c10::DeviceType::CPU);
    (void)linear_gelu(layer, input, GeluForm::kTanh);
  }
  const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
  EXPECT_TRUE(at::equal(linear_gelu(without_bias, input, GeluForm::kTanh),
                        at::gelu(at::linear(input, without_bias->weight), "tanh")));
  EXPECT_EQ(linear_gelu(layer, at::randn({0, 16}), GeluForm::kTanh).numel(), 0);
  auto in_bf16 = layer_of(16, 32);
  in_bf16->to(at::kBFloat16);
  EXPECT_TRUE(at::equal(linear_gelu(in_bf16, input, GeluForm::kExact),
                        at::gelu(at::linear(input, in_bf16->weight, in_bf16->bias))));
  EXPECT_EQ(counted.forward, 0);
}

}  // namespace
}  // namespace stoker::model
