// captioner: names and shapes, what a frozen encoder keeps, loading an encoder.
#include <set>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/utils.h>

#include "shared/model/caption_model.h"
#include "shared/model/load_weights.h"
#include "shared/model/model.h"
#include "shared/model/torch_dtype.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr int64_t kVocab = 11;

config::ModelConfig captioner(config::CaptionDecoder decoder,
                              config::ImageEncoder encoder = config::ImageEncoder::kResnet8) {
  return {.arch = config::CaptionerConfig{
              .encoder = {.name = encoder},
              .decoder = {.name = decoder, .hidden_size = 16, .num_layers = 2, .num_heads = 4},
              .max_length = 6}};
}

std::vector<TensorSpec> captioned_images(int64_t side, int64_t length = 6) {
  return {{"input", DType::kU8, {3, side, side}},
          {"labels", DType::kI64, {2, length}},
          {"references", DType::kU8, {64}}};
}

std::shared_ptr<CaptionModel> made(const config::ModelConfig& config, int64_t side = 32) {
  torch::manual_seed(3);
  auto model = make_model(config, captioned_images(side), kVocab);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return std::dynamic_pointer_cast<CaptionModel>(*model);
}

std::set<std::string> names_of(const Model& model) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : named_tensors(model)) names.insert(name);
  return names;
}

class CaptionerTest : public ::testing::TestWithParam<config::CaptionDecoder> {};
INSTANTIATE_TEST_SUITE_P(Decoders, CaptionerTest,
                         ::testing::Values(config::CaptionDecoder::kLstm,
                                           config::CaptionDecoder::kTransformer),
                         [](const auto& each) {
                           return each.param == config::CaptionDecoder::kLstm ? "lstm"
                                                                              : "transformer";
                         });

TEST_P(CaptionerTest, ReturnsLogitsOfEachNextToken) {
  const auto model = made(captioner(GetParam()));
  const at::Tensor tokens = at::zeros({3, 5}, at::kLong);
  const at::Tensor logits = model->decode(model->encode(at::rand({3, 3, 32, 32})), tokens);
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{3, 5, kVocab}));
  EXPECT_EQ(model->forward(at::rand({2, 3, 32, 32})).sizes(), (std::vector<int64_t>{2, 1, kVocab}));
}

TEST_P(CaptionerTest, DoesNotSeeLaterTokens) {
  const auto model = made(captioner(GetParam()));
  model->eval();
  const at::Tensor encoded = model->encode(at::rand({1, 3, 32, 32}));
  const at::Tensor one = at::tensor({0, 4, 5, 6, 7}, at::kLong).view({1, 5});
  const at::Tensor other = at::tensor({0, 4, 5, 9, 2}, at::kLong).view({1, 5});
  const at::Tensor difference =
      (model->decode(encoded, one) - model->decode(encoded, other)).abs().amax({0, 2});
  EXPECT_LT(difference.narrow(0, 0, 3).max().item<double>(), 1e-6);
  EXPECT_GT(difference[3].item<double>(), 1e-5);
}

TEST_P(CaptionerTest, ComputesTheLogitsOfTheLastPositionAlone) {
  const auto model = made(captioner(GetParam()));
  model->eval();
  const at::Tensor encoded = model->encode(at::rand({2, 3, 32, 32}));
  const at::Tensor tokens = at::tensor({0, 4, 5, 0, 7, 2}, at::kLong).view({2, 3});
  KeyValueCache cache;
  EXPECT_TRUE(at::allclose(model->decode_last(encoded, tokens, cache),
                           model->decode(encoded, tokens).select(1, -1), 1e-5, 1e-6));
}

// Rows are dropped, repeated and reordered as in a beam search.
TEST_P(CaptionerTest, ComputesTheSameLogitsWithACache) {
  const at::NoGradGuard no_grad;
  const auto model = made(captioner(GetParam()));
  model->eval();
  at::Tensor encoded = model->encode(at::rand({3, 3, 32, 32}));
  at::Tensor tokens = at::zeros({3, 1}, at::kLong);
  KeyValueCache cache;
  for (const std::vector<int64_t>& rows :
       std::vector<std::vector<int64_t>>{{0, 1, 2}, {2, 0, 2, 1}, {3, 3, 0}, {1, 2, 0}, {2}}) {
    const at::Tensor selected = at::tensor(rows, at::kLong);
    encoded = encoded.index_select(0, selected);
    tokens = tokens.index_select(0, selected);
    cache.select_rows(selected);
    const at::Tensor logits = model->decode_last(encoded, tokens, cache);
    EXPECT_TRUE(at::allclose(logits, model->decode(encoded, tokens).select(1, -1), 1e-5, 1e-6));
    const at::Tensor next = at::randint(2, kVocab, {tokens.size(0), 1}, at::kLong);
    tokens = at::cat({tokens, next}, 1);
  }
}

TEST_P(CaptionerTest, SeesTheImage) {
  const auto model = made(captioner(GetParam()));
  model->eval();
  const at::Tensor start = at::zeros({1, 1}, at::kLong);
  const at::Tensor a = model->decode(model->encode(at::zeros({1, 3, 32, 32})), start);
  const at::Tensor b = model->decode(model->encode(at::ones({1, 3, 32, 32})), start);
  EXPECT_FALSE(at::allclose(a, b));
}

TEST_P(CaptionerTest, KeepsTheStatisticsOfAFrozenEncoder) {
  const auto model = made(captioner(GetParam()));
  const auto statistics = [&] {
    for (const auto& [name, tensor] : named_tensors(*model))
      if (name == "encoder.bn1.running_mean") return tensor.clone();
    return at::Tensor();
  };
  const auto frozen = freeze(*model, {"encoder.*"});
  ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
  EXPECT_THAT(*frozen,
              AllOf(Contains("encoder.conv1.weight"), Not(Contains("decoder.tok.weight"))));
  model->train();
  const at::Tensor before = statistics();
  const at::Tensor images = at::rand({4, 3, 32, 32});
  (void)model->encode(images);
  EXPECT_TRUE(at::equal(statistics(), before));
  for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(true);
  (void)model->encode(images);
  EXPECT_FALSE(at::equal(statistics(), before));
}

TEST(Captioner, HasTheParametersOfTheEncoderWithoutItsHead) {
  const auto names = names_of(*made(captioner(config::CaptionDecoder::kLstm)));
  EXPECT_THAT(names, IsSupersetOf({"encoder.conv1.weight", "encoder.layer3.0.bn2.running_var",
                                   "decoder.image.weight", "decoder.tok.weight",
                                   "decoder.lstm.weight_hh_l1", "decoder.head.bias"}));
  EXPECT_THAT(names, Not(Contains("encoder.fc.weight")));
}

TEST(Captioner, AcceptsEachFamilyOfEncoders) {
  using config::CaptionDecoder;
  using config::ImageEncoder;
  for (const auto& [encoder, decoder, side] :
       {std::tuple(ImageEncoder::kInceptionV3, CaptionDecoder::kLstm, 75),
        {ImageEncoder::kResnet18, CaptionDecoder::kTransformer, 32},
        {ImageEncoder::kVitB32, CaptionDecoder::kTransformer, 32}}) {
    const auto model = made(captioner(decoder, encoder), side);
    model->eval();
    EXPECT_EQ(model->forward(at::rand({1, 3, side, side})).sizes(),
              (std::vector<int64_t>{1, 1, kVocab}));
    for (const std::string& name : names_of(*model))
      EXPECT_FALSE(name.starts_with("encoder.AuxLogits") || name.starts_with("encoder.fc") ||
                   name.starts_with("encoder.heads"))
          << name;
  }
}

// Nodes of the backward graph from `node` on with `part` in their names.
size_t count_nodes(const std::shared_ptr<torch::autograd::Node>& node, const std::string& part,
                   std::set<const torch::autograd::Node*>& seen) {
  if (node == nullptr || !seen.insert(node.get()).second) return 0;
  size_t count = node->name().find(part) == std::string::npos ? 0 : 1;
  for (const auto& edge : node->next_edges()) count += count_nodes(edge.function, part, seen);
  return count;
}

TEST(Captioner, RecomputesTheBlocksOfAVitEncoder) {
  for (const bool recomputed : {false, true}) {
    config::ModelConfig config =
        captioner(config::CaptionDecoder::kLstm, config::ImageEncoder::kVitB32);
    std::get<config::CaptionerConfig>(config.arch).activation_checkpointing = recomputed;
    const at::Tensor encoded = made(config)->encode(at::rand({1, 3, 32, 32}));
    std::set<const torch::autograd::Node*> seen;
    EXPECT_EQ(count_nodes(encoded.grad_fn(), "CheckpointFunction", seen), recomputed ? 12 : 0);
  }
}

checkpoint::OwnedTensor to_owned(const std::string& name, const at::Tensor& tensor) {
  const auto* const bytes = static_cast<const std::byte*>(tensor.data_ptr());
  return {to_tensor_spec(name, tensor), {bytes, bytes + tensor.nbytes()}};
}

TEST(Captioner, LoadsAPretrainedEncoder) {
  torch::manual_seed(5);
  const auto classifier =
      *make_model({.arch = config::ResnetConfig{.depth = 8}},
                  {{"input", DType::kU8, {3, 32, 32}}, {"label", DType::kI64, {}}}, 10);
  std::vector<checkpoint::OwnedTensor> tensors;
  for (const auto& [name, tensor] : named_tensors(*classifier))
    tensors.push_back(to_owned(name, tensor));
  const test::TemporaryDirectory scratch;
  config::PretrainedConfig pretrained{.path = scratch / "w",
                                      .key_mapping = {{"*", "encoder.*"}},
                                      .exclude = {"decoder.*", "encoder.fc.*"}};
  ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch.path(), "w",
                                            checkpoint::views_of(tensors), {})
                  .ok());
  const auto model = made(captioner(config::CaptionDecoder::kLstm));
  pretrained::StateDictMapping mapping;
  const Status loaded = load_pretrained(*model, {.pretrained = pretrained}, mapping);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  size_t same = 0;
  for (const auto& [name, tensor] : named_tensors(*model))
    for (const auto& [of_classifier, expected] : named_tensors(*classifier))
      if (name == "encoder." + of_classifier && at::equal(tensor, expected)) ++same;
  EXPECT_EQ(same, named_tensors(*classifier).size() - 2);
}

TEST(Captioner, RejectsDataThatDoesNotFit) {
  const auto config = captioner(config::CaptionDecoder::kLstm);
  EXPECT_THAT(make_model(config, captioned_images(32, 7), kVocab).status().message(),
              HasSubstr("model.max_length is 6, but the data's captions have up to 7 tokens"));
  EXPECT_THAT(make_model(config, {captioned_images(32)[0]}, kVocab).status().message(),
              HasSubstr("needs samples with captions"));
  EXPECT_THAT(make_model(config, captioned_images(4), kVocab).status().message(),
              HasSubstr("at least 8 x 8 pixels"));
}

}  // namespace
}  // namespace stoker::model
