// The fused kernels on a CUDA device, compared with LibTorch's operators. Skipped if there is no device, or
// the module has no kernels. Their arithmetic is tested on the host (kernels/).
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "daemon/train/device.h"
#include "daemon/train/optimizer.h"
#include "shared/model/autocast.h"
#include "shared/model/fused_kernels.h"
#include "shared/model/gelu.h"
#include "shared/model/linear_cross_entropy.h"
#include "shared/model/norm.h"
#include "shared/model/rope.h"
#include "shared/model/swiglu.h"

namespace stoker::train {
namespace {

constexpr int64_t kIgnored = -100;

class CudaKernelsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    device_ = open_device({.type = config::DeviceConfig::Type::kCuda, .index = {}});
  }
  void SetUp() override {
    if (!device_.ok()) GTEST_SKIP() << device_.status().message();
    select(true);
    if (model::fused_kernels(*device_) == model::KernelTable())
      GTEST_SKIP() << "the CUDA module has no fused kernels";
    at::manual_seed(21);
  }
  void TearDown() override {
    if (device_.ok()) select(false);
  }

  static void select(bool fused) {
    config::TrainConfig config{.device = {.type = config::DeviceConfig::Type::kCuda, .index = {}}};
    if (fused) config.fused_kernels = config::kAllFusedKernels;
    select_fused_kernels(config, *device_);
  }
  // From the CPU's generator.
  static at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
    return at::randn(shape).to(*device_).to(dtype);
  }

  static inline Result<c10::Device> device_ = Status(StatusCode::kNotFound, "not initialized");
};

void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  const at::Tensor wanted = expected.to(at::kDouble);
  EXPECT_LE((actual.to(at::kDouble) - wanted).norm().item<double>(),
            tolerance * wanted.norm().item<double>() + 1e-6);
}

at::Tensor bf16_leaf(const at::Tensor& tensor) { return tensor.to(at::kBFloat16).requires_grad_(); }

TEST_F(CudaKernelsTest, AdamwMatchesLibTorch) {
  for (const int copies : {1, 70}) {  // one launch, and several
    NamedTensors fused, plain;
    for (int i = 0; i < copies; ++i) {
      for (const int64_t size : {1, 1003, 4096, 70'001}) {
        const std::string name = std::to_string(i) + "." + std::to_string(size);
        fused.emplace_back(name, random({size}).requires_grad_());
        plain.emplace_back(name, fused.back().second.detach().clone().requires_grad_());
      }
    }
    const config::OptimizerConfig config{.method = config::AdamWConfig{}};
    const auto of_fused = *Optimizer::create(config, {}, fused);
    const auto of_plain = *Optimizer::create(config, {}, plain);
    for (int step = 0; step < 5; ++step) {
      for (size_t i = 0; i < fused.size(); ++i) {
        const at::NoGradGuard no_grad;
        plain[i].second.mutable_grad().copy_(random(plain[i].second.sizes()));
        fused[i].second.mutable_grad().copy_(plain[i].second.grad());
      }
      select(true);
      (void)of_fused->step(0.01);
      select(false);
      (void)of_plain->step(0.01);
    }
    for (size_t i = 0; i < fused.size(); ++i) expect_near(fused[i].second, plain[i].second, 1e-5);
    for (size_t i = 0; i < of_fused->state().size(); ++i)
      expect_near(of_fused->state()[i].second, of_plain->state()[i].second, 1e-5);
  }
}

TEST_F(CudaKernelsTest, LinearCrossEntropyMatchesLibTorch) {
  for (const int64_t classes : {3, 257, 50'257}) {
    for (const int64_t chunk_bytes : {int64_t{1} << 16, int64_t{1} << 30}) {
      const at::Tensor features = random({100, 64}, at::kBFloat16).to(at::kFloat).requires_grad_();
      const at::Tensor weight =
          random({classes, 64}, at::kBFloat16).to(at::kFloat).requires_grad_();
      const at::Tensor labels = at::randint(0, classes, {100}, at::kLong).to(*device_);
      labels[5] = kIgnored;
      const at::Tensor features64 = features.detach().to(at::kDouble).requires_grad_();
      const at::Tensor weight64 = weight.detach().to(at::kDouble).requires_grad_();
      const at::Tensor wanted = at::cross_entropy_loss(at::linear(features64, weight64), labels, {},
                                                       at::Reduction::Mean, kIgnored);
      wanted.backward();
      const model::Autocast autocast(at::kBFloat16, device_->type());
      const at::Tensor loss =
          model::linear_cross_entropy(features, weight, labels, kIgnored, chunk_bytes);
      loss.backward();
      EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 0.01 * wanted.item<double>());
      expect_near(features.grad(), features64.grad(), 0.02);
      expect_near(weight.grad(), weight64.grad(), 0.02);
    }
  }
}

TEST_F(CudaKernelsTest, NormMatchesLibTorch) {
  for (const int64_t width : {1, 33, 768, 1000, 8200}) {
    for (const bool has_bias : {false, true}) {
      const auto leaf = [](const at::Tensor& tensor) {
        return tensor.detach().clone().requires_grad_();
      };
      const at::Tensor x = leaf(random({300, width})),
                       delta = leaf(random({300, width}, at::kBFloat16));
      const at::Tensor factor = random({300, width}, at::kBFloat16);
      const model::NormWeights weights{leaf(random({width})),
                                       has_bias ? leaf(random({width})) : at::Tensor(), 1e-5};
      const auto doubles = [&](const at::Tensor& tensor) {
        return tensor.defined() ? leaf(tensor.to(at::kDouble)) : tensor;
      };
      const at::Tensor x64 = doubles(x), delta64 = doubles(delta);
      const model::NormWeights weights64{doubles(weights.weight), doubles(weights.bias), 1e-5};
      const model::AddedNorm wanted =
          model::add_norm(x64, delta64, weights64);  // LibTorch's, of F64
      (wanted.output * factor.to(at::kDouble) + wanted.sum).sum().backward();
      const model::Autocast autocast(at::kBFloat16, device_->type());
      const model::AddedNorm added = model::add_norm(x, delta, weights);
      ASSERT_EQ(added.output.scalar_type(), at::kBFloat16);
      (added.output.to(at::kFloat) * factor.to(at::kFloat) + added.sum).sum().backward();
      expect_near(added.sum, wanted.sum, 1e-6);
      expect_near(added.output, wanted.output, 0.003);
      expect_near(x.grad(), x64.grad(), 1e-4);
      expect_near(delta.grad(), delta64.grad(), 0.004);
      expect_near(weights.weight.grad(), weights64.weight.grad(), 1e-4);
      if (has_bias) expect_near(weights.bias.grad(), weights64.bias.grad(), 1e-4);
    }
  }
}

// As in bert: no kernel, whose output would be BF16.
TEST_F(CudaKernelsTest, KeepsResidualStreamsInF32) {
  const at::Tensor x = random({50, 768}), delta = random({50, 768}, at::kBFloat16);
  const at::Tensor weight = random({768}), bias = random({768});
  const at::Tensor wanted =
      model::add_norm(x.to(at::kDouble), delta.to(at::kDouble),
                      {weight.to(at::kDouble), bias.to(at::kDouble), 1e-12, /*is_residual=*/true})
          .output;
  const model::Autocast autocast(at::kBFloat16, device_->type());
  const model::AddedNorm added =
      model::add_norm(x, delta, {weight, bias, 1e-12, /*is_residual=*/true});
  EXPECT_EQ(added.output.scalar_type(), at::kFloat);
  expect_near(added.output, wanted, 1e-5);
}

TEST_F(CudaKernelsTest, LinearGeluMatchesLibTorch) {
  for (const int64_t width : {1, 33, 1000, 3072}) {
    for (const auto& [form, name] :
         {std::pair{model::GeluForm::kExact, "none"}, std::pair{model::GeluForm::kTanh, "tanh"}}) {
      torch::nn::Linear layer(64, width), layer64(64, width);
      layer->to(*device_);
      layer64->to(*device_, at::kDouble);
      {
        const at::NoGradGuard no_grad;
        layer64->weight.copy_(layer->weight.to(at::kBFloat16));
        layer64->bias.copy_(layer->bias);
      }
      const at::Tensor x = random({300, 64}, at::kBFloat16).requires_grad_();
      const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor wanted = at::gelu(at::linear(x64, layer64->weight, layer64->bias), name);
      const at::Tensor factor = random({300, width}, at::kBFloat16);
      wanted.backward(factor.to(at::kDouble));
      const model::Autocast autocast(at::kBFloat16, device_->type());
      const at::Tensor output = model::linear_gelu(layer, x, form);
      output.backward(factor);
      expect_near(output, wanted, 0.01);
      expect_near(x.grad(), x64.grad(), 0.01);
      expect_near(layer->weight.grad(), layer64->weight.grad(), 0.01);
      expect_near(layer->bias.grad(), layer64->bias.grad(), 0.01);
    }
  }
}

TEST_F(CudaKernelsTest, SwigluMatchesLibTorch) {
  for (const int64_t size : {7, 2048, 100'003}) {
    const at::Tensor gate = bf16_leaf(random({size})), up = bf16_leaf(random({size}));
    const at::Tensor gate64 = gate.detach().to(at::kDouble).requires_grad_();
    const at::Tensor wanted = model::swiglu(gate64, up.detach().to(at::kDouble));
    wanted.sum().backward();
    const model::Autocast autocast(at::kBFloat16, device_->type());
    const at::Tensor output = model::swiglu(gate, up);
    output.sum().backward();
    expect_near(output, wanted, 0.004);
    expect_near(gate.grad(), gate64.grad(), 0.004);
  }
}

TEST_F(CudaKernelsTest, RopeMatchesLibTorch) {
  for (const int64_t half : {3, 32, 64}) {
    const at::Tensor x = bf16_leaf(random({2, 50, 3, 2 * half}).transpose(1, 2));
    const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_();
    const at::Tensor angles = at::rand({50, half}).to(*device_) * 6;
    const model::RopeTables tables{angles.cos(), angles.sin()};
    const at::Tensor wanted = model::rotate(x64, tables);
    const at::Tensor factor = random(x.sizes(), at::kBFloat16);
    wanted.backward(factor.to(at::kDouble));
    const model::Autocast autocast(at::kBFloat16, device_->type());
    const at::Tensor output = model::rotate(x, tables);
    output.backward(factor);
    expect_near(output, wanted, 0.004);
    expect_near(x.grad(), x64.grad(), 0.004);
  }
}

}  // namespace
}  // namespace stoker::train
