// generate_tokens(): the filters of sampling, the cache of keys and values, and where a sequence ends.
#include "shared/task/generate_tokens.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "shared/model/model.h"

namespace stoker::task {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<std::vector<int64_t>>;

constexpr int64_t kContext = 16, kVocab = 23;

// ---- Filters

TEST(FilterLogits, ExcludesWhatTransformersExcludes) {
  std::ifstream golden(STOKER_SAMPLING_GOLDEN);
  std::string line;
  int lines = 0;
  for (; std::getline(golden, line); ++lines) {
    std::istringstream words(line);
    double temperature = 0, top_p = 0;
    int top_k = 0, vocab = 0;
    words >> temperature >> top_k >> top_p >> vocab;
    std::vector<float> values(2 * static_cast<size_t>(vocab));
    std::string word;
    for (float& value : values) value = words >> word ? std::stof(word) : NAN;
    const at::Tensor both = at::tensor(values).view({2, vocab});
    const Sampling sampling{.temperature = temperature,
                            .top_k = top_k > 0 ? std::optional(top_k) : std::nullopt,
                            .top_p = top_p};
    EXPECT_TRUE(
        at::allclose(filter_logits(both.narrow(0, 0, 1), sampling), both.narrow(0, 1, 1), 1e-6, 0))
        << line;
  }
  EXPECT_EQ(lines, 160);
}

TEST(FilterLogits, FiltersEachRowByItself) {
  const float excluded = -std::numeric_limits<float>::infinity();
  const at::Tensor logits = at::tensor({1.f, 2.f, 3.f, 9.f, 7.f, 8.f}).view({2, 3});
  EXPECT_TRUE(at::allclose(filter_logits(logits, {.top_k = 2}),
                           at::tensor({excluded, 2.f, 3.f, 9.f, excluded, 8.f}).view({2, 3})));
}

// ---- A model whose next token is a function of the last one, and that counts its calls

class Chain : public model::Model {
 public:
  explicit Chain(at::Tensor table) : table_(register_parameter("table", std::move(table), false)) {}

  at::Tensor forward(const at::Tensor& input) override {
    inputs.push_back(input.size(1));
    EXPECT_FALSE(is_training());
    return table_.index_select(0, input.flatten()).view({input.size(0), input.size(1), -1});
  }
  int64_t context() const override { return 4; }
  int64_t vocab() const override { return table_.size(0); }

  std::vector<int64_t> inputs;  // time steps

 private:
  const at::Tensor table_;
};

// 0 1 2 3 4 0 1 …, with another token that is less likely.
at::Tensor cycle() {
  at::Tensor table = at::full({5, 5}, -20.f);
  for (int64_t token = 0; token < 5; ++token) {
    table[token][(token + 1) % 5] = 2;
    table[token][(token + 2) % 5] = 1;
  }
  return table;
}

at::Tensor prompts_of(const std::vector<int64_t>& tokens, int64_t rows) {
  return at::tensor(tokens, at::kLong).view({rows, -1});
}

TEST(GenerateTokens, TakesTheMostLikelyTokenAtTemperatureZero) {
  Chain model(cycle());
  const Tokens tokens = generate_tokens(model, prompts_of({0, 3}, 2),
                                        {.sampling = {.temperature = 0}, .max_new_tokens = 6});
  EXPECT_THAT(tokens, ElementsAre(ElementsAre(1, 2, 3, 4, 0, 1), ElementsAre(4, 0, 1, 2, 3, 4)));
  EXPECT_TRUE(model.is_training()) << "as before";
}

TEST(GenerateTokens, TakesTheMostLikelyTokenAtTinyTemperatures) {
  Chain model(cycle());
  for (const double temperature : {1e-5, 1e-38, 1e-320})
    EXPECT_THAT(generate_tokens(model, prompts_of({0}, 1),
                                {.sampling = {.temperature = temperature}, .max_new_tokens = 3}),
                ElementsAre(ElementsAre(1, 2, 3)));
}

TEST(GenerateTokens, TakesTheMostLikelyTokenOfOne) {
  Chain model(cycle());
  for (const Sampling& sampling : {Sampling{.top_k = 1}, Sampling{.top_p = 0.01}})
    EXPECT_THAT(
        generate_tokens(model, prompts_of({0}, 1), {.sampling = sampling, .max_new_tokens = 3}),
        ElementsAre(ElementsAre(1, 2, 3)));
}

TEST(GenerateTokens, ReadsTheLastTokensThatFitTheContext) {
  Chain model(cycle());
  (void)generate_tokens(model, prompts_of({0, 1, 2}, 1), {.max_new_tokens = 4});
  EXPECT_THAT(model.inputs, ElementsAre(3, 4, 4, 4));
}

TEST(GenerateTokens, EndsEachSequenceAtItsEndToken) {
  Chain model(cycle());
  const Tokens tokens =
      generate_tokens(model, prompts_of({0, 3, 2}, 3),
                      {.sampling = {.temperature = 0}, .max_new_tokens = 100, .end = 4});
  EXPECT_THAT(tokens, ElementsAre(ElementsAre(1, 2, 3), IsEmpty(), ElementsAre(3)));
  EXPECT_EQ(model.inputs.size(), 4U) << "the last sequence has ended";
}

TEST(GenerateTokens, EndsEarlyOnRequest) {
  Chain model(cycle());
  int calls = 0;
  const Tokens tokens =
      generate_tokens(model, prompts_of({0}, 1),
                      {.max_new_tokens = 9, .should_continue = [&] { return ++calls < 3; }});
  EXPECT_EQ(tokens.front().size(), 2U);
}

TEST(GenerateTokens, DrawsByProbabilityFromTheSeed) {
  Chain model(cycle());
  const auto draw = [&](uint64_t seed) {
    return generate_tokens(model, at::zeros({1000, 1}, at::kLong), {.seed = seed});
  };
  EXPECT_EQ(draw(5), draw(5));
  EXPECT_NE(draw(5), draw(6));
  int likely = 0;
  for (const auto& row : draw(5)) likely += row.front() == 1 ? 1 : 0;
  // 1000 draws with probability e^2 / (e^2 + e) = 0.731: standard deviation 14.
  EXPECT_NEAR(likely, 731, 60);
}

// ---- With and without the cache

class RandomModels {
 public:
  explicit RandomModels(unsigned seed) : random_(seed) { at::set_num_threads(1); }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool coin() { return pick(0, 1) == 1; }

  config::ModelVariant settings(int kind) {
    const int64_t heads = pick(1, 4), width = heads * 2 * pick(1, 4);
    if (kind == 0)
      return config::GptConfig{.num_layers = pick(1, 3),
                               .num_heads = heads,
                               .embed_dim = width,
                               .context_length = kContext,
                               .vocab_size = kVocab};
    if (kind == 1)
      return config::Gpt2Config{.num_layers = pick(1, 3),
                                .num_heads = heads,
                                .embed_dim = width,
                                .context_length = kContext,
                                .vocab_size = kVocab,
                                .tie_weights = coin()};
    config::LlamaConfig llama{.num_layers = pick(1, 3),
                              .num_heads = heads,
                              .embed_dim = width,
                              .mlp_dim = 8 * pick(1, 3),
                              .context_length = kContext,
                              .vocab_size = kVocab};
    llama.num_key_value_heads = heads % 2 == 0 && coin() ? heads / 2 : coin() ? heads : 1;
    if (coin()) llama.head_dim = 2 * pick(1, 5);
    llama.qkv_bias = coin();
    llama.qk_norm = coin();
    llama.tie_weights = coin();
    llama.rope_theta = coin() ? 10000 : 500;
    if (coin())
      llama.rope_scaling = config::RopeScaling{.rope_type = config::RopeType::kLinear, .factor = 2};
    return llama;
  }

  // In F64, so that rounding cannot decide between two tokens. Larger weights than in training make
  // the tokens differ.
  model::ModelPtr make(int kind) {
    torch::manual_seed(static_cast<uint64_t>(pick(0, 1 << 30)));
    auto made =
        model::make_model({.arch = settings(kind)}, {{"tokens", DType::kI64, {kContext + 1}}}, 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    (*made)->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : (*made)->parameters())
      if (parameter.dim() == 2) parameter.mul_(10);
    return *made;
  }

 private:
  std::mt19937 random_;
};

constexpr const char* kKinds[]{"gpt", "gpt2", "llama"};

class KeyValueCacheTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Models, KeyValueCacheTest, ::testing::Values(0, 1, 2),
                         [](const auto& each) { return kKinds[each.param]; });

TEST_P(KeyValueCacheTest, GeneratesTheSameTokensAsWithout) {
  RandomModels random(static_cast<unsigned>(GetParam()) + 1);
  std::set<int64_t> distinct;
  for (int round = 0; round < 30; ++round) {
    const model::ModelPtr model = random.make(GetParam());
    const at::Tensor prompts =
        at::randint(kVocab, {random.pick(1, 4), random.pick(1, kContext + 2)}, at::kLong);
    for (const Sampling& sampling :
         {Sampling{.temperature = 0}, Sampling{.temperature = 0.9, .top_k = 9, .top_p = 0.95},
          Sampling{}}) {
      Generation generation{
          .sampling = sampling, .max_new_tokens = kContext, .seed = static_cast<uint64_t>(round)};
      const Tokens with_cache = generate_tokens(*model, prompts, generation);
      generation.use_cache = false;
      EXPECT_EQ(with_cache, generate_tokens(*model, prompts, generation)) << round;
      for (const auto& row : with_cache) distinct.insert(row.begin(), row.end());
    }
  }
  EXPECT_EQ(distinct.size(), static_cast<size_t>(kVocab));
}

// As a prompt that is processed in parts.
TEST_P(KeyValueCacheTest, ContinuesBySeveralTokens) {
  const at::NoGradGuard no_grad;
  RandomModels random(static_cast<unsigned>(GetParam()) + 9);
  for (int round = 0; round < 10; ++round) {
    const model::ModelPtr model = random.make(GetParam());
    model->eval();
    const at::Tensor tokens = at::randint(kVocab, {3, kContext}, at::kLong);
    const at::Tensor expected = model->forward(tokens);
    model::KeyValueCache cache;
    for (int64_t time = 0; time < kContext;) {
      time = std::min(kContext, time + random.pick(1, 6));
      EXPECT_TRUE(at::allclose(model->next_logits(tokens.narrow(1, 0, time), cache),
                               expected.select(1, time - 1), 1e-9, 1e-9))
          << round << ' ' << time;
      EXPECT_EQ(cache.length(), time);
    }
  }
}

}  // namespace
}  // namespace stoker::task
