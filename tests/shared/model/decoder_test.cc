// gpt2 and llama: names, shapes, positions, groups of queries; tests/parity compares the values.
#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "shared/model/autocast.h"
#include "shared/model/model.h"
#include "shared/model/rope.h"
#include "shared/model/torch_dtype.h"

namespace stoker::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kTime = 12, kVocab = 20;

config::Gpt2Config small_gpt2() {
  return {.num_layers = 1,
          .num_heads = 2,
          .embed_dim = 8,
          .context_length = kTime,
          .vocab_size = kVocab,
          .dropout = 0};
}

config::LlamaConfig small_llama() {
  return {.num_layers = 1,
          .num_heads = 4,
          .num_key_value_heads = 2,
          .embed_dim = 16,
          .mlp_dim = 24,
          .context_length = kTime,
          .vocab_size = kVocab};
}

ModelPtr make(config::ModelVariant arch) {
  at::set_num_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  const auto model =
      make_model({.arch = std::move(arch)}, {{"tokens", DType::kI64, {kTime + 1}}}, 0);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

std::string error_of(config::ModelVariant arch) {
  return make_model({.arch = std::move(arch)}, {{"tokens", DType::kI64, {kTime + 1}}}, 0)
      .status()
      .message();
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(model))
    names.push_back(to_string(to_tensor_spec(name, tensor)));
  return names;
}

at::Tensor tokens() { return at::arange(2 * kTime, at::kLong).remainder(kVocab).view({2, kTime}); }

at::Tensor logits_of(Model& model, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward(input);
}

TEST(Gpt2Test, HasTheBlocksOfGptAndTheEmbeddingAsHead) {
  EXPECT_THAT(
      names_of(*make(small_gpt2())),
      ElementsAre("tok.weight F32 [20, 8]", "pos.weight F32 [12, 8]", "blocks.0.ln1.weight F32 [8]",
                  "blocks.0.ln1.bias F32 [8]", "blocks.0.qkv.weight F32 [24, 8]",
                  "blocks.0.qkv.bias F32 [24]", "blocks.0.proj.weight F32 [8, 8]",
                  "blocks.0.proj.bias F32 [8]", "blocks.0.ln2.weight F32 [8]",
                  "blocks.0.ln2.bias F32 [8]", "blocks.0.up.weight F32 [32, 8]",
                  "blocks.0.up.bias F32 [32]", "blocks.0.down.weight F32 [8, 32]",
                  "blocks.0.down.bias F32 [8]", "ln.weight F32 [8]", "ln.bias F32 [8]"));
}

TEST(Gpt2Test, HasThePublishedNumberOfParameters) {
  config::Gpt2Config one_layer;
  one_layer.num_layers = 1;
  int64_t parameters = 0;
  for (const at::Tensor& parameter : make(one_layer)->parameters()) parameters += parameter.numel();
  const int64_t block = 7'087'872;
  EXPECT_EQ(parameters + 11 * block, 124'439'808);
}

// Of the backward graph from `node` on.
void add_node_names(const std::shared_ptr<torch::autograd::Node>& node,
                    std::set<const torch::autograd::Node*>& seen, std::vector<std::string>& names) {
  if (node == nullptr || !seen.insert(node.get()).second) return;
  names.push_back(node->name());
  for (const auto& edge : node->next_edges()) add_node_names(edge.function, seen, names);
}

// The gradient of a selection is a tensor of the size of queries, keys and values together, of which three
// are added.
TEST(Gpt2Test, ConcatenatesGradientsOfQueriesKeysAndValues) {
  const ModelPtr model = make(small_gpt2());
  std::set<const torch::autograd::Node*> seen;
  std::vector<std::string> names;
  add_node_names(model->forward(tokens()).grad_fn(), seen, names);
  EXPECT_EQ(std::ranges::count(names, "SplitBackward0"), 1);
  EXPECT_THAT(names, testing::Not(testing::Contains(HasSubstr("Select"))));
}

TEST(LlamaTest, HasSeparateProjectionsAndAGate) {
  EXPECT_THAT(names_of(*make(small_llama())),
              ElementsAre("tok.weight F32 [20, 16]", "blocks.0.ln1.weight F32 [16]",
                          "blocks.0.q.weight F32 [16, 16]", "blocks.0.k.weight F32 [8, 16]",
                          "blocks.0.v.weight F32 [8, 16]", "blocks.0.proj.weight F32 [16, 16]",
                          "blocks.0.ln2.weight F32 [16]", "blocks.0.gate.weight F32 [24, 16]",
                          "blocks.0.up.weight F32 [24, 16]", "blocks.0.down.weight F32 [16, 24]",
                          "ln.weight F32 [16]", "head.weight F32 [20, 16]"));
}

TEST(LlamaTest, HasTheBiasesAndNormsOfQwen) {
  config::LlamaConfig qwen = small_llama();
  qwen.qkv_bias = qwen.proj_bias = qwen.mlp_bias = qwen.qk_norm = qwen.tie_weights = true;
  qwen.head_dim = 6;
  const std::vector<std::string> names = names_of(*make(qwen));
  for (const char* const name :
       {"blocks.0.q.weight F32 [24, 16]", "blocks.0.q.bias F32 [24]", "blocks.0.k.bias F32 [12]",
        "blocks.0.v.bias F32 [12]", "blocks.0.q_norm.weight F32 [6]",
        "blocks.0.k_norm.weight F32 [6]", "blocks.0.proj.weight F32 [16, 24]",
        "blocks.0.proj.bias F32 [16]", "blocks.0.gate.bias F32 [24]", "blocks.0.up.bias F32 [24]",
        "blocks.0.down.bias F32 [16]"})
    EXPECT_THAT(names, testing::Contains(name));
  EXPECT_THAT(names, testing::Not(testing::Contains("head.weight F32 [20, 16]")));
}

TEST(LlamaTest, PredictsFromEarlierTokensOnly) {
  const ModelPtr model = make(small_llama());
  const at::Tensor before = logits_of(*model, tokens());
  at::Tensor changed = tokens();
  changed.select(1, 7).fill_(3);
  const at::Tensor after = logits_of(*model, changed);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 7), after.narrow(1, 0, 7)));
  EXPECT_FALSE(at::allclose(before.narrow(1, 7, 1), after.narrow(1, 7, 1)));
}

// Queries that share a head of keys and values compute as if each had a copy of it.
TEST(LlamaTest, SharesKeysAndValuesAmongGroupsOfQueries) {
  const ModelPtr grouped = make(small_llama());
  config::LlamaConfig repeated = small_llama();
  repeated.num_key_value_heads.reset();
  const ModelPtr full = make(repeated);
  const at::NoGradGuard no_grad;
  auto from = grouped->named_parameters();
  for (auto& parameter : full->named_parameters()) {
    at::Tensor value = from[parameter.key()];
    if (value.sizes() != parameter.value().sizes())
      value = value.view({2, 4, 16}).repeat_interleave(2, 0).view({16, 16});
    parameter.value().copy_(value);
  }
  EXPECT_TRUE(at::allclose(logits_of(*grouped, tokens()), logits_of(*full, tokens())));
}

TEST(LlamaTest, RecomputesActivationsBitForBit) {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool recomputes : {false, true}) {
    config::LlamaConfig config = small_llama();
    config.attention_dropout = 0.2;
    config.activation_checkpointing = recomputes;
    const ModelPtr model = make(config);
    model->forward(tokens()).square().mean().backward();
    for (const at::Tensor& parameter : model->parameters())
      gradients.resize(recomputes + 1), gradients.back().push_back(parameter.grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
}

TEST(LlamaTest, DropsAttentionInTrainingOnly) {
  config::LlamaConfig config = small_llama();
  config.attention_dropout = 0.5;
  const ModelPtr model = make(config);
  EXPECT_TRUE(at::equal(logits_of(*model, tokens()), logits_of(*model, tokens())));
  model->train();
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(at::equal(model->forward(tokens()), model->forward(tokens())));
}

TEST(LlamaTest, RunsInBf16WithF32Weights) {
  const ModelPtr model = make(small_llama());
  const at::Tensor exact = logits_of(*model, tokens());
  at::Tensor rounded;
  {
    const Autocast autocast(at::kBFloat16, c10::DeviceType::CPU);
    rounded = logits_of(*model, tokens());
  }
  EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(exact, rounded.to(at::kFloat), 0.05, 0.01));
}

TEST(LlamaTest, NamesSizesThatContradictEachOther) {
  config::LlamaConfig config = small_llama();
  config.num_key_value_heads = 3;
  EXPECT_THAT(error_of(config), HasSubstr("num_key_value_heads (3) must divide num_heads (4)"));
  config = small_llama();
  config.head_dim = 3;
  EXPECT_THAT(error_of(config), HasSubstr("head_dim (3) must be even"));
  config = small_llama();
  config.embed_dim = 18;
  EXPECT_THAT(error_of(config), HasSubstr("embed_dim (18) must be a multiple of num_heads (4)"));
  config.num_layers = 0;
  EXPECT_THAT(error_of(config), HasSubstr("must be at least 1"));
}

// The product of a query and a key depends on the distance of their positions only.
TEST(RopeTest, EncodesRelativePositions) {
  Rope rope(8, 10000, {});
  const at::Tensor q = at::randn({1, 1, 1, 8}), k = at::randn({1, 1, 1, 8});
  const auto at_position = [&](const at::Tensor& x, int64_t position) {
    const RopeTables tables = rope.tables(kTime, x);
    return rotate(x, {tables.cos.narrow(0, position, 1), tables.sin.narrow(0, position, 1)});
  };
  const auto product = [&](int64_t of_q, int64_t of_k) {
    return at_position(q, of_q).mul(at_position(k, of_k)).sum().item<double>();
  };
  EXPECT_NEAR(product(5, 2), product(9, 6), 1e-5);
  EXPECT_TRUE(at::equal(at_position(q, 0), q));
}

// Angles of position 1, which are the frequencies.
std::vector<double> frequencies_of(const config::RopeScaling& scaling) {
  Rope rope(4, 10000, scaling);
  const RopeTables tables = rope.tables(2, at::tensor({0.0f}));
  std::vector<double> frequencies;
  for (int i = 0; i < 2; ++i) frequencies.push_back(std::asin(tables.sin[1][i].item<double>()));
  return frequencies;
}

TEST(RopeTest, DividesAllFrequenciesIfLinear) {
  const std::vector<double> frequencies =
      frequencies_of({.rope_type = config::RopeType::kLinear, .factor = 4});
  EXPECT_NEAR(frequencies[0], 0.25, 1e-6);
  EXPECT_NEAR(frequencies[1], 0.0025, 1e-6);
}

// Frequencies of 1 and 0.01, that is periods of 6.3 and 628 tokens.
TEST(RopeTest, DividesLowFrequenciesIfLlama3) {
  const auto with_original = [](int64_t original) {
    return frequencies_of({.rope_type = config::RopeType::kLlama3,
                           .factor = 4,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_position_embeddings = original});
  };
  EXPECT_NEAR(with_original(100)[1], 0.0025, 1e-7) << "a period above the original context";
  EXPECT_NEAR(with_original(10000)[1], 0.01, 1e-7) << "a period below a quarter of it";
  const double share = (1256.0 / 628.3185 - 1) / 3;  // of the way from 1 to 4 periods
  EXPECT_NEAR(with_original(1256)[1], share * 0.01 + (1 - share) * 0.0025, 1e-6);
}

TEST(RopeTest, ReturnsTheSameTablesForAnotherLength) {
  Rope rope(8, 500000, {});
  const at::Tensor like = at::tensor({0.0f});
  const at::Tensor longer = rope.tables(9, like).cos.clone();
  EXPECT_TRUE(at::equal(rope.tables(4, like).cos, longer.narrow(0, 0, 4)));
  EXPECT_TRUE(at::equal(rope.tables(12, like).cos.narrow(0, 0, 9), longer));
  EXPECT_EQ(rope.tables(3, like.to(at::kDouble)).cos.scalar_type(), at::kDouble);
}

// A captured CUDA graph reads them at the same address.
TEST(RopeTest, KeepsTheTablesOfShorterBatches) {
  Rope rope(8, 10000, {});
  const at::Tensor like = at::tensor({0.0f});
  const void* const address = rope.tables(4, like).cos.data_ptr();
  const at::Tensor longer = rope.tables(8, like).cos;
  EXPECT_NE(longer.data_ptr(), address);
  EXPECT_EQ(rope.tables(4, like).cos.data_ptr(), address);
  EXPECT_EQ(rope.tables(7, like).cos.data_ptr(), longer.data_ptr());
}

}  // namespace
}  // namespace stoker::model
