#include "shared/model/activation_checkpointing.h"

#include <ostream>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include "shared/model/autocast.h"
#include "shared/model/caption_model.h"
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

at::Tensor some_tokens() { return at::arange(8 * 64, at::kLong).remainder(256).view({8, 64}); }

// A model whose blocks can be recomputed.
struct ModelWithBlocks {
  std::string name;
  config::ModelConfig (*make_config)(bool recomputed, double dropout);
  std::vector<TensorSpec> sample;
  at::Tensor (*logits)(Model& model);
};
void PrintTo(const ModelWithBlocks& each, std::ostream* out) { *out << each.name; }

const ModelWithBlocks kGpt{
    .name = "gpt",
    .make_config =
        [](bool recomputed, double dropout) {
          return config::ModelConfig{.arch =
                                         config::GptConfig{.num_layers = 4,
                                                           .num_heads = 2,
                                                           .embed_dim = 32,
                                                           .context_length = 64,
                                                           .dropout = dropout,
                                                           .activation_checkpointing = recomputed}};
        },
    .sample = {{"tokens", DType::kI64, {65}}},
    .logits = [](Model& model) { return model.forward(some_tokens()); }};

const ModelWithBlocks kVit{
    .name = "vit",
    .make_config =
        [](bool recomputed, double dropout) {
          config::ModelConfig config{.arch =
                                         config::VitConfig{.patch_size = 4,
                                                           .num_layers = 4,
                                                           .num_heads = 2,
                                                           .hidden_dim = 32,
                                                           .dropout = dropout,
                                                           .activation_checkpointing = recomputed}};
          // With a head of 0, so would be the gradients.
          config.init = {{"heads.head.weight", config::NormalInit{.std = 0.1}}};
          return config;
        },
    .sample = {{"input", DType::kF32, {3, 32, 32}}, {"label", DType::kI64, {}}},
    .logits =
        [](Model& model) {
          return model.forward(at::rand({8, 3, 32, 32}));
        }};

const ModelWithBlocks kCaptioner{
    .name = "captioner",
    .make_config =
        [](bool recomputed, double dropout) {
          return config::ModelConfig{.arch = config::CaptionerConfig{
                                         .encoder = {.name = config::ImageEncoder::kResnet8},
                                         .decoder = {.name = config::CaptionDecoder::kTransformer,
                                                     .hidden_size = 32,
                                                     .num_layers = 4,
                                                     .num_heads = 2,
                                                     .dropout = dropout},
                                         .max_length = 64,
                                         .activation_checkpointing = recomputed}};
        },
    .sample = {{"input", DType::kF32, {3, 8, 8}},
               {"labels", DType::kI64, {1, 64}},
               {"references", DType::kU8, {64}}},
    .logits =
        [](Model& model) {
          auto& captioner = dynamic_cast<CaptionModel&>(model);
          return captioner.decode(captioner.encode(at::rand({8, 3, 8, 8})), some_tokens());
        }};

class CheckpointActivationsTest : public testing::TestWithParam<ModelWithBlocks> {
 protected:
  static PassResult run_pass(bool recomputed, double dropout,
                             std::optional<at::ScalarType> autocast) {
    at::set_num_threads(1);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(3);
    const auto made =
        make_model(GetParam().make_config(recomputed, dropout), GetParam().sample, /*classes=*/256);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    const ModelPtr& model = *made;
    model->train();
    PassResult result;
    const auto peak = std::make_shared<PeakMemory>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
      {
        const Autocast shorter(autocast, c10::DeviceType::CPU);
        result.logits = GetParam().logits(*model);
      }
      result.logits.to(at::kFloat).square().mean().backward();
    }
    result.peak = peak->max_bytes();
    for (const at::Tensor& parameter : model->parameters())
      result.gradients.push_back(parameter.grad());
    result.random_after = at::rand({4});
    return result;
  }
};

void expect_same_bits(const PassResult& plain, const PassResult& recomputed) {
  EXPECT_TRUE(at::equal(plain.logits, recomputed.logits));
  EXPECT_TRUE(at::equal(plain.random_after, recomputed.random_after))
      << "number of random values differs";
  ASSERT_EQ(plain.gradients.size(), recomputed.gradients.size());
  EXPECT_GT(plain.gradients.front().abs().max().item<double>(), 0);
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    ASSERT_TRUE(plain.gradients[i].defined() && recomputed.gradients[i].defined()) << i;
    EXPECT_TRUE(at::equal(plain.gradients[i], recomputed.gradients[i])) << i;
  }
}

TEST_P(CheckpointActivationsTest, ComputesPlainGradientsBitForBit) {
  expect_same_bits(run_pass(false, 0.0, {}), run_pass(true, 0.0, {}));
}

TEST_P(CheckpointActivationsTest, RepeatsDropoutMaskOnRecomputation) {
  expect_same_bits(run_pass(false, 0.3, {}), run_pass(true, 0.3, {}));
}

TEST_P(CheckpointActivationsTest, RepeatsAutocastOnRecomputation) {
  expect_same_bits(run_pass(false, 0.1, at::kBFloat16), run_pass(true, 0.1, at::kBFloat16));
}

TEST_P(CheckpointActivationsTest, ReducesPeakMemory) {
  EXPECT_LT(run_pass(true, 0.0, {}).peak, run_pass(false, 0.0, {}).peak * 6 / 10);
}

INSTANTIATE_TEST_SUITE_P(Models, CheckpointActivationsTest, testing::Values(kGpt, kVit, kCaptioner),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace stoker::model
