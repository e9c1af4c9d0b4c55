#include "shared/model/activation_checkpointing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"
#include "shared/model/model.h"

namespace stoker::model {
namespace {

// Records the peak memory of the tensors of this thread.
class Peak : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t most() const { return most_; }

 private:
  int64_t now_ = 0, most_ = 0;
};

struct Pass {
  at::Tensor logits;
  std::vector<at::Tensor> gradients;
  at::Tensor drawn_after;  // random numbers of the default generator after the pass
  int64_t peak = 0;
};

Pass pass(bool recomputed, double dropout, std::optional<at::ScalarType> autocast) {
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
  Pass found;
  const auto peak = std::make_shared<Peak>();
  {
    const c10::DebugInfoGuard watch(c10::DebugInfoKind::PROFILER_STATE, peak);
    {
      const Autocast shorter(autocast, c10::DeviceType::CPU);
      found.logits = model->forward(tokens);
    }
    found.logits.to(at::kFloat).square().mean().backward();
  }
  found.peak = peak->most();
  for (const at::Tensor& parameter : model->parameters())
    found.gradients.push_back(parameter.grad());
  found.drawn_after = at::rand({4});
  return found;
}

void expect_same_bits(const Pass& plain, const Pass& again) {
  EXPECT_TRUE(at::equal(plain.logits, again.logits));
  EXPECT_TRUE(at::equal(plain.drawn_after, again.drawn_after)) << "it drew more, or less";
  ASSERT_EQ(plain.gradients.size(), again.gradients.size());
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    ASSERT_TRUE(plain.gradients[i].defined() && again.gradients[i].defined()) << i;
    EXPECT_TRUE(at::equal(plain.gradients[i], again.gradients[i])) << i;
  }
}

TEST(CheckpointActivationsTest, ComputesPlainGradientsBitForBit) {
  expect_same_bits(pass(false, 0.0, {}), pass(true, 0.0, {}));
}

TEST(CheckpointActivationsTest, RepeatsDropoutMaskOnRecomputation) {
  expect_same_bits(pass(false, 0.3, {}), pass(true, 0.3, {}));
}

TEST(CheckpointActivationsTest, RepeatsAutocastOnRecomputation) {
  expect_same_bits(pass(false, 0.1, at::kBFloat16), pass(true, 0.1, at::kBFloat16));
}

TEST(CheckpointActivationsTest, ReducesPeakMemory) {
  EXPECT_LT(pass(true, 0.0, {}).peak, pass(false, 0.0, {}).peak * 6 / 10);
}

}  // namespace
}  // namespace stoker::model
