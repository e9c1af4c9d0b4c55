// Models configured layer by layer: their parameter names, and the errors for incompatible layers.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/model/model.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SequentialModelTest : public ::testing::Test {
 protected:
  Result<ModelPtr> make(const std::string& stack) {
    const std::string task = input_.empty() ? "language_modeling" : "classification";
    const std::string data =
        input_.empty() ? "{format: text, path: a}"
                       : "{format: synthetic, num_samples: 1, input_shape: [1], num_classes: 3}";
    const auto config =
        config::parse_config("data: {train: " + data + "}\ntask: {name: " + task +
                                 "}\nmodel: {name: sequential, layers: " + stack + "}\n",
                             "test.yaml", {});
    if (!config.ok()) return config.status();
    if (input_.empty()) return make_model(config->model, {{"tokens", DType::kU8, {9}}}, 256);
    return make_model(config->model, {{"input", DType::kF32, input_}, {"label", DType::kI64, {}}},
                      3);
  }
  std::vector<std::string> names(const std::string& stack) {
    std::vector<std::string> names;
    const auto model = make(stack);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    if (model.ok())
      for (const auto& [name, tensor] : named_tensors(**model)) names.push_back(name);
    return names;
  }
  std::string rejected(const std::string& stack) {
    const auto model = make(stack);
    return model.ok() ? "it was made" : model.status().message();
  }

  std::vector<int64_t> input_{2, 8, 8};
};

TEST_F(SequentialModelTest, NumbersLayersLikeTorchSequential) {
  EXPECT_THAT(
      names("[relu, {residual: {body: [relu, {conv2d: {out_channels: 2, kernel_size: 1}}], "
            "shortcut: [{conv2d: {out_channels: 2, kernel_size: 1, bias: false}}]}}, flatten, "
            "linear]"),
      ElementsAre("1.body.1.weight", "1.body.1.bias", "1.shortcut.0.weight", "3.weight", "3.bias"));
}

TEST_F(SequentialModelTest, ProducesNumberOfClassesOfData) {
  const auto model = make("[flatten, linear]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->forward(at::zeros({4, 2, 8, 8})).sizes(), (at::IntArrayRef{4, 3}));
}

TEST_F(SequentialModelTest, AppliesNestedDropoutOnlyInTraining) {
  const auto model = make("[flatten, {residual: {body: [{dropout: {p: 0.9}}]}}, linear]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor input = at::zeros({1, 2, 8, 8}).fill_(1.0);
  (*model)->eval();
  EXPECT_TRUE((*model)->forward(input).equal((*model)->forward(input)));
  (*model)->train();
  EXPECT_FALSE((*model)->forward(input).equal((*model)->forward(input)));
}

TEST_F(SequentialModelTest, DoesNotModifyInput) {
  const auto model = make("[relu, flatten, linear]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor input = at::zeros({1, 2, 8, 8}).fill_(-1.0);
  (*model)->forward(input);
  EXPECT_EQ(input.min().item<float>(), -1.0f);
}

TEST_F(SequentialModelTest, ReportsIncompatibleLayerWithLocationAndInputShape) {
  const std::string conv = "{conv2d: {out_channels: 4, kernel_size: 3}}";
  EXPECT_THAT(rejected("[flatten, " + conv + "]"),
              AllOf(StartsWith("model.layers[1].conv2d: needs images"), HasSubstr("[128]")));
  EXPECT_THAT(rejected("[relu, {residual: {body: [relu, {max_pool2d: {kernel_size: 9}}]}}]"),
              AllOf(StartsWith("model.layers[1].residual.body[1].max_pool2d: its kernel_size of 9"),
                    HasSubstr("[2, 8, 8]")));
  EXPECT_THAT(rejected("[{residual: {body: [" + conv + "]}}]"),
              AllOf(StartsWith("model.layers[0].residual: "), HasSubstr("body produces [4, 6, 6]"),
                    HasSubstr("shortcut [2, 8, 8]")));
  EXPECT_THAT(rejected("[flatten, {linear: {out_features: 5}}]"),
              AllOf(HasSubstr("ends with [5]"), HasSubstr("needs [3]")));
  EXPECT_THAT(rejected("[{conv2d: {out_channels: 4, kernel_size: 3, groups: 3}}]"),
              HasSubstr("groups (3)"));
  EXPECT_THAT(rejected("[{lstm: {hidden_size: 4}}]"), HasSubstr("needs sequences"));
  EXPECT_THAT(rejected("[{max_pool2d: {kernel_size: 2, padding: 2}}]"),
              HasSubstr("half its kernel_size"));
}

TEST_F(SequentialModelTest, RequiresEmbeddingLayerForTokens) {
  input_.clear();
  EXPECT_THAT(
      names("[{embedding: {num_embeddings: 256, embedding_dim: 8}}, {lstm: {hidden_size: 4}}, "
            "{linear: {bias: false}}]"),
      ElementsAre("0.weight", "1.weight_ih_l0", "1.weight_hh_l0", "1.bias_ih_l0", "1.bias_hh_l0",
                  "2.weight"));
  EXPECT_THAT(rejected("[{embedding: {num_embeddings: 100, embedding_dim: 8}}, linear]"),
              AllOf(HasSubstr("num_embeddings is 100"), HasSubstr("256 tokens")));
}

TEST_F(SequentialModelTest, ProducesOutputPerTimeStepWithPerStepLabels) {
  const std::vector<TensorSpec> sample{{"input", DType::kF32, {7, 5}},
                                       {"labels", DType::kI64, {7}}};
  const auto sequential = [](std::vector<config::Layer> layers) {
    return config::ModelConfig{.arch = config::SequentialConfig{std::move(layers)}};
  };
  const auto tagger = make_model(
      sequential({config::LstmLayer{.hidden_size = 6}, config::LinearLayer{}}), sample, 3);
  ASSERT_TRUE(tagger.ok()) << tagger.status().to_string();
  EXPECT_EQ((*tagger)->forward(at::zeros({4, 2, 5})).sizes(), (at::IntArrayRef{4, 2, 3}))
      << "of as many steps as the batch has";
  EXPECT_THAT(make_model(sequential({config::FlattenLayer{}, config::LinearLayer{}}), sample, 3)
                  .status()
                  .message(),
              AllOf(HasSubstr("ends with [3]"), HasSubstr("needs [7, 3]")));
}

TEST_F(SequentialModelTest, RejectsOversizedLayersBeforeAllocation) {
  const std::string wide = "{conv2d: {out_channels: 1000000, kernel_size: 1}}";
  EXPECT_THAT(rejected("[" + wide + ", " + wide + "]"), HasSubstr("a weight that is too large"));
  EXPECT_THAT(rejected("[{adaptive_avg_pool2d: {output_size: 100000}}]"),
              HasSubstr("which is too large"));
}

}  // namespace
}  // namespace stoker::model
