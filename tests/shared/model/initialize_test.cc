// model.init and model.forget_bias.
#include "shared/model/initialize.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/model.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<TensorSpec> kVectorSample{{"input", DType::kF32, {6}},
                                            {"label", DType::kI64, {}}};
const std::vector<TensorSpec> kSequenceSample{{"input", DType::kF32, {4, 6}},
                                              {"label", DType::kI64, {}}};

config::ModelConfig mlp_with(std::vector<config::InitRule> init) {
  return {.arch = config::MlpConfig{.hidden_sizes = {5}}, .init = std::move(init)};
}
Result<ModelPtr> make_seeded(const config::ModelConfig& config,
                             const std::vector<TensorSpec>& sample) {
  at::manual_seed(7);
  return make_model(config, sample, 2);
}
at::Tensor parameter_of(const ModelPtr& model, const std::string& name) {
  return *model->named_parameters().find(name);
}

TEST(InitializeTest, AppliesFirstPatternThatMatchesNameOrItsLastPart) {
  const auto model = make_seeded(mlp_with({{"2.bias", config::OnesInit{}},
                                           {"bias", config::ConstantInit{.val = 0.5}},
                                           {"0.*", config::ZerosInit{}}}),
                                 kVectorSample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_TRUE(parameter_of(*model, "2.bias").equal(at::ones({2})));
  EXPECT_TRUE(parameter_of(*model, "0.bias").equal(at::full({5}, 0.5)));
  EXPECT_TRUE(parameter_of(*model, "0.weight").equal(at::zeros({5, 6})));
  const auto plain = make_seeded(mlp_with({}), kVectorSample);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_TRUE(parameter_of(*model, "2.weight").equal(parameter_of(*plain, "2.weight")));
  EXPECT_TRUE(parameter_of(*model, "0.weight").requires_grad());
}

TEST(InitializeTest, MakesRowsOrthogonal) {
  const auto model =
      make_seeded(mlp_with({{"weight", config::OrthogonalInit{.gain = 2}}}), kVectorSample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor weight = parameter_of(*model, "0.weight").detach();
  EXPECT_LE((weight.matmul(weight.t()) - at::eye(5) * 4).abs().max().item<float>(), 1e-5F);
}

TEST(InitializeTest, StaysWithinBoundsOfTruncatedNormalWithMean) {
  const auto model = make_seeded(
      mlp_with({{"weight", config::TruncNormalInit{.mean = 1, .std = 2, .a = 0.5, .b = 3}}}),
      kVectorSample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor weight = parameter_of(*model, "0.weight").detach();
  EXPECT_GE(weight.min().item<float>(), 0.5F);
  EXPECT_LE(weight.max().item<float>(), 3.0F);
  EXPECT_GT(weight.std().item<float>(), 0.3F);
}

TEST(InitializeTest, RejectsPatternsThatDoNotApply) {
  const auto rejected = [](std::vector<config::InitRule> init) {
    const auto model = make_seeded(mlp_with(std::move(init)), kVectorSample);
    return model.ok() ? "it was made" : model.status().message();
  };
  EXPECT_THAT(rejected({{"fc.*", config::ZerosInit{}}}),
              AllOf(HasSubstr("model.init: 'fc.*' applies to no parameter"),
                    HasSubstr("from '0.weight' to '2.bias'")));
  EXPECT_THAT(rejected({{"*", config::ZerosInit{}}, {"bias", config::OnesInit{}}}),
              HasSubstr("'bias' applies to no parameter that an earlier pattern does not match"));
  EXPECT_THAT(rejected({{"*", config::XavierUniformInit{}}}),
              AllOf(HasSubstr("'*' selects a function for parameters with two or more dimensions"),
                    HasSubstr("0.bias F32 [5]")));
}

TEST(InitializeTest, RejectsModelWithoutParameters) {
  config::ModelConfig config{.arch = config::SequentialConfig{.layers = {config::FlattenLayer{}}},
                             .init = {{"weight", config::ZerosInit{}}}};
  const std::vector<TensorSpec> sample{{"input", DType::kF32, {2}}, {"label", DType::kI64, {}}};
  const Status rejected = make_seeded(config, sample).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rejected.message(),
              HasSubstr("'weight' applies to no parameter; the model has none"));
  config.init.clear();
  const auto model = make_seeded(config, sample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_THAT(freeze(**model, {"weight"}).status().message(),
              HasSubstr("the model has no parameters"));
}

class ModelWithTable : public Model {
 public:
  ModelWithTable() {
    register_parameter("table", at::ones({2}), /*requires_grad=*/false);
    register_parameter("body", at::ones({2}));
    register_parameter("head", at::ones({2}));
  }
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

TEST(FreezeTest, ReturnsOnlyNamesOfParametersThatWereTrainable) {
  ModelWithTable model;
  const auto frozen = freeze(model, {"[bt]*"});
  ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
  EXPECT_THAT(*frozen, ElementsAre("body"));
  EXPECT_FALSE(model.named_parameters()["body"].requires_grad());
}

TEST(FreezeTest, RejectsPatternWithoutMatch) {
  ModelWithTable model;
  EXPECT_THAT(freeze(model, {"body", "hed"}).status().message(),
              HasSubstr("model.freeze: 'hed' matches no parameter"));
  EXPECT_TRUE(model.named_parameters()["body"].requires_grad());
}

TEST(FreezeTest, RequiresTrainableParameterInAdditionToFixedTable) {
  ModelWithTable model;
  EXPECT_THAT(freeze(model, {"body", "head"}).status().message(),
              HasSubstr("all trainable parameters match"));
  EXPECT_TRUE(model.named_parameters()["body"].requires_grad());
}

TEST(InitializeTest, AddsForgetBiasAfterInit) {
  config::ModelConfig config{
      .arch = config::BlstmConfig{.num_layers = 2, .hidden_size = 3, .forget_bias = 1},
      .init = {{"lstm.bias_*", config::ZerosInit{}}}};
  const auto model = make_seeded(config, kSequenceSample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  at::Tensor expected = at::zeros({12});
  expected.narrow(0, 3, 3).fill_(1);  // input, forget, cell, output
  for (const std::string layer : {"l0", "l0_reverse", "l1", "l1_reverse"}) {
    EXPECT_TRUE(parameter_of(*model, "lstm.bias_ih_" + layer).equal(expected)) << layer;
    EXPECT_TRUE(parameter_of(*model, "lstm.bias_hh_" + layer).equal(at::zeros({12}))) << layer;
  }
}

TEST(InitializeTest, BuildsOneOutputForTwoClasses) {
  config::ModelConfig config = mlp_with({});
  config.num_classes = 1;
  const auto model = make_seeded(config, kVectorSample);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->forward(at::zeros({3, 6})).sizes(), (at::IntArrayRef{3, 1}));
  at::manual_seed(7);
  EXPECT_EQ(make_model(config, kVectorSample, 3).status().code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace stoker::model
