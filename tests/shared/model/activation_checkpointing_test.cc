#include "shared/model/activation_checkpointing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"
#include "shared/model/model.h"
#include "tests/shared/model/peak_memory.h"

namespace stoker::model {
namespace {

struct PassResult {
  at::Tensor logits;
  std::vector<at::Tensor> gradients;
  at::Tensor random_after;  // random numbers of the default generator after the pass
  int64_t peak = 0;
};

PassResult run_pass(bool recomputed, double dropout, std::optional<at::ScalarType> autocast) {
  at::set_num_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  const config::ModelConfig config{.arch =
                                       config::GptConfig{.num_layers = 4,
                                                         .num_heads = 2,
                                                         .embed_dim = 32,
                                                         .context_length = 64,
                                                         .dropout = dropout,
                                                         .activation_checkpointing = recomputed}};
  const auto model = *make_model(config, {{"tokens", DType::kI64, {65}}}, 256);
  model->train();
  const at::Tensor tokens = at::arange(8 * 64, at::kLong).remainder(256).view({8, 64});
  PassResult result;
  const auto peak = std::make_shared<PeakMemory>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
    {
      const Autocast shorter(autocast, c10::DeviceType::CPU);
      result.logits = model->forward(tokens);
    }
    result.logits.to(at::kFloat).square().mean().backward();
  }
  result.peak = peak->max_bytes();
  for (const at::Tensor& parameter : model->parameters())
    result.gradients.push_back(parameter.grad());
  result.random_after = at::rand({4});
  return result;
}

void expect_same_bits(const PassResult& plain, const PassResult& recomputed) {
  EXPECT_TRUE(at::equal(plain.logits, recomputed.logits));
  EXPECT_TRUE(at::equal(plain.random_after, recomputed.random_after))
      << "number of random values differs";
  ASSERT_EQ(plain.gradients.size(), recomputed.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    ASSERT_TRUE(plain.gradients[i].defined() && recomputed.gradients[i].defined()) << i;
    EXPECT_TRUE(at::equal(plain.gradients[i], recomputed.gradients[i])) << i;
  }
}

TEST(CheckpointActivationsTest, ComputesPlainGradientsBitForBit) {
  expect_same_bits(run_pass(false, 0.0, {}), run_pass(true, 0.0, {}));
}

TEST(CheckpointActivationsTest, RepeatsDropoutMaskOnRecomputation) {
  expect_same_bits(run_pass(false, 0.3, {}), run_pass(true, 0.3, {}));
}

TEST(CheckpointActivationsTest, RepeatsAutocastOnRecomputation) {
  expect_same_bits(run_pass(false, 0.1, at::kBFloat16), run_pass(true, 0.1, at::kBFloat16));
}

TEST(CheckpointActivationsTest, ReducesPeakMemory) {
  EXPECT_LT(run_pass(true, 0.0, {}).peak, run_pass(false, 0.0, {}).peak * 6 / 10);
}

}  // namespace
}  // namespace stoker::model
