// bert: names, shapes, padding, token types, pooling; tests/parity compares the values.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/model.h"
#include "shared/model/torch_dtype.h"

namespace stoker::model {
namespace {

using config::BertPooling;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBertTime = 6, kBertVocab = 20, kSep = 5;
constexpr uint64_t kBertClasses = 3;

config::BertConfig small_bert(BertPooling pooling = BertPooling::kPooler) {
  return {.num_layers = 1,
          .num_heads = 2,
          .embed_dim = 8,
          .context_length = 9,
          .vocab_size = kBertVocab,
          .pooling = pooling,
          .dropout = 0,
          .attention_dropout = 0};
}

const std::vector<TensorSpec> kBertSample{
    {"tokens", DType::kI32, {kBertTime}}, {"length", DType::kI64, {}}, {"label", DType::kI64, {}}};

ModelPtr make_bert_model(const config::BertConfig& config) {
  at::set_num_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  const auto model = make_model({.arch = config}, kBertSample, kBertClasses);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

std::string bert_error(const config::BertConfig& config,
                       const std::vector<TensorSpec>& sample = kBertSample) {
  return make_model({.arch = config}, sample, kBertClasses).status().message();
}

at::Tensor token_ids() {
  return at::arange(2 * kBertTime, at::kLong).remainder(kBertVocab).view({2, kBertTime});
}

at::Tensor padded_outputs(Model& model, const at::Tensor& input,
                          const std::vector<int64_t>& lengths) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward_padded(input, at::tensor(lengths));
}

at::Tensor bert_outputs(Model& model, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward(input);
}

TEST(BertTest, HasSeparateProjectionsAPoolerAndAnOutputLayer) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(*make_bert_model(small_bert())))
    names.push_back(to_string(to_tensor_spec(name, tensor)));
  EXPECT_THAT(names, ElementsAre("tok.weight F32 [20, 8]", "pos.weight F32 [9, 8]",
                                 "type.weight F32 [2, 8]", "embed_ln.weight F32 [8]",
                                 "embed_ln.bias F32 [8]", "blocks.0.ln1.weight F32 [8]",
                                 "blocks.0.ln1.bias F32 [8]", "blocks.0.q.weight F32 [8, 8]",
                                 "blocks.0.q.bias F32 [8]", "blocks.0.k.weight F32 [8, 8]",
                                 "blocks.0.k.bias F32 [8]", "blocks.0.v.weight F32 [8, 8]",
                                 "blocks.0.v.bias F32 [8]", "blocks.0.proj.weight F32 [8, 8]",
                                 "blocks.0.proj.bias F32 [8]", "blocks.0.ln2.weight F32 [8]",
                                 "blocks.0.ln2.bias F32 [8]", "blocks.0.up.weight F32 [32, 8]",
                                 "blocks.0.up.bias F32 [32]", "blocks.0.down.weight F32 [8, 32]",
                                 "blocks.0.down.bias F32 [8]", "pooler.weight F32 [8, 8]",
                                 "pooler.bias F32 [8]", "fc.weight F32 [3, 8]", "fc.bias F32 [3]"));
}

// As transformers' _init_weights; tests/parity has its gradient.
TEST(BertTest, StartsWithAPadTokenOfZeros) {
  config::BertConfig config = small_bert();
  config.pad_token = 3;
  const auto model = make_bert_model(config);
  const auto unpadded = make_bert_model(small_bert());
  const at::Tensor tokens = model->named_parameters()["tok.weight"];
  EXPECT_EQ(tokens[3].abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(tokens[4], unpadded->named_parameters()["tok.weight"][4]));
}

TEST(BertTest, HasThePublishedNumberOfParameters) {
  config::BertConfig one_layer;
  one_layer.num_layers = 1;
  int64_t parameters = 0;
  for (const auto& item : make_bert_model(one_layer)->named_parameters())
    if (!item.key().starts_with("fc.")) parameters += item.value().numel();
  const int64_t block = 7'087'872;
  EXPECT_EQ(parameters + 11 * block, 109'482'240);
}

TEST(BertTest, PaddingHasNoEffect) {
  for (const BertPooling pooling : {BertPooling::kPooler, BertPooling::kMean, BertPooling::kNone}) {
    const auto model = make_bert_model(small_bert(pooling));
    const at::Tensor input = token_ids();
    at::Tensor other = input.clone();
    other.narrow(1, 4, 2).fill_(0);
    const at::Tensor short_input = input.narrow(1, 0, 4);
    const bool is_per_token = pooling == BertPooling::kNone;
    const auto valid = [&](const at::Tensor& all) {
      return is_per_token ? all.narrow(1, 0, 4) : all;
    };
    const at::Tensor expected = bert_outputs(*model, short_input);
    EXPECT_TRUE(at::allclose(valid(padded_outputs(*model, input, {4, 4})), expected, 1e-5, 1e-6));
    EXPECT_TRUE(at::equal(valid(padded_outputs(*model, input, {4, 4})),
                          valid(padded_outputs(*model, other, {4, 4}))));
    // Without padding, all time steps are seen.
    EXPECT_FALSE(at::allclose(valid(bert_outputs(*model, input)), expected, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(padded_outputs(*model, input, {kBertTime, kBertTime}),
                             bert_outputs(*model, input), 1e-5, 1e-6));
    EXPECT_TRUE(at::isfinite(padded_outputs(*model, input, {0, 3})).all().item<bool>());
  }
}

TEST(BertTest, SeesTokensOnBothSides) {
  const auto model = make_bert_model(small_bert(BertPooling::kNone));
  at::Tensor changed = token_ids();
  changed.select(1, kBertTime - 1).fill_(19);
  const at::Tensor before = bert_outputs(*model, token_ids()),
                   after = bert_outputs(*model, changed);
  EXPECT_FALSE(at::allclose(before.select(1, 0), after.select(1, 0), 1e-5, 1e-6));
}

// The types of "1 2 5 3 5 4" are 0 0 0 1 1 1, because there are two.
TEST(BertTest, CountsSeparatorsAsTokenTypes) {
  config::BertConfig config = small_bert(BertPooling::kNone);
  const auto plain = make_bert_model(config);
  config.sep_token = kSep;
  const auto typed = make_bert_model(config);
  const at::Tensor pair = at::tensor(std::vector<int64_t>{1, 2, kSep, 3, kSep, 4}).unsqueeze(0);
  const at::Tensor one = at::tensor(std::vector<int64_t>{1, 2, 3, 4, 6, kSep}).unsqueeze(0);
  EXPECT_TRUE(at::equal(bert_outputs(*plain, one), bert_outputs(*typed, one)));
  EXPECT_FALSE(at::allclose(bert_outputs(*plain, pair), bert_outputs(*typed, pair), 1e-5, 1e-6));
  // With the same vector for all types, they have no effect.
  const at::NoGradGuard no_grad;
  for (const auto& model : {plain, typed}) {
    const at::Tensor types = model->named_parameters()["type.weight"];
    types.select(0, 1).copy_(types.select(0, 0));
  }
  EXPECT_TRUE(at::equal(bert_outputs(*plain, pair), bert_outputs(*typed, pair)));
}

TEST(BertTest, CheckpointsActivations) {
  const auto gradient = [](bool checkpointing) {
    config::BertConfig config = small_bert();
    config.dropout = config.attention_dropout = 0.2;
    config.activation_checkpointing = checkpointing;
    const auto model = make_bert_model(config);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(7);
    model->forward_padded(token_ids(), at::tensor(std::vector<int64_t>{6, 3})).sum().backward();
    return model->named_parameters()["tok.weight"].grad().clone();
  };
  EXPECT_TRUE(at::equal(gradient(false), gradient(true)));
}

TEST(BertTest, RejectsWhatDoesNotFit) {
  config::BertConfig config = small_bert();
  config.num_heads = 3;
  EXPECT_THAT(bert_error(config), HasSubstr("embed_dim (8) a multiple of num_heads (3)"));
  config = small_bert();
  config.context_length = 5;
  EXPECT_THAT(bert_error(config), HasSubstr("model.context_length is 5, but the data has tokens"));
  EXPECT_THAT(bert_error(small_bert(), {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}}),
              HasSubstr("model bert needs sequences of tokens, `tokens` [steps]; the data has "
                        "input F32 [3]"));
}

}  // namespace
}  // namespace stoker::model
