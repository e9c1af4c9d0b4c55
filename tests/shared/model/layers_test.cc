// Models that are declared layer by layer: their names, and what is said of layers that do not fit.
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

class Layers : public ::testing::Test {
 protected:
  Result<ModelPtr> make(const std::string& stack) {
    const std::string task = input_.empty() ? "language_model" : "classification";
    const std::string data =
        input_.empty() ? "{kind: text, path: a}" : "{kind: synthetic, samples: 1, features: [1]}";
    const auto config = config::parse_config("data: {train: " + data + "}\ntask: {kind: " + task +
                                                 "}\nmodel: {kind: layers, stack: " + stack + "}\n",
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
  std::string refused(const std::string& stack) {
    const auto model = make(stack);
    return model.ok() ? "it was made" : model.status().message();
  }

  std::vector<int64_t> input_{2, 8, 8};
};

TEST_F(Layers, AreNumberedAsASequentialNumbersThem) {
  EXPECT_THAT(
      names("[{kind: relu}, {kind: residual, body: [{kind: relu}, {kind: conv, channels: 2, "
            "kernel: 1}], shortcut: [{kind: conv, channels: 2, kernel: 1, bias: false}]}, {kind: "
            "flatten}, {kind: linear}]"),
      ElementsAre("1.body.1.weight", "1.body.1.bias", "1.shortcut.0.weight", "3.weight", "3.bias"));
}

TEST_F(Layers, GiveTheOutputsThatTheDataAsksFor) {
  const auto model = make("[{kind: flatten}, {kind: linear}]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->forward(at::zeros({4, 2, 8, 8})).sizes(), (at::IntArrayRef{4, 3}));
}

TEST_F(Layers, DropInTrainingOnlyAlsoInsideABody) {
  const auto model = make(
      "[{kind: flatten}, {kind: residual, body: [{kind: dropout, part: 0.9}]}, {kind: linear}]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor input = at::zeros({1, 2, 8, 8}).fill_(1.0);
  (*model)->eval();
  EXPECT_TRUE((*model)->forward(input).equal((*model)->forward(input)));
  (*model)->train();
  EXPECT_FALSE((*model)->forward(input).equal((*model)->forward(input)));
}

TEST_F(Layers, LeaveTheInputAsItWas) {
  const auto model = make("[{kind: relu}, {kind: flatten}, {kind: linear}]");
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const at::Tensor input = at::zeros({1, 2, 8, 8}).fill_(-1.0);
  (*model)->forward(input);
  EXPECT_EQ(input.min().item<float>(), -1.0f);
}

TEST_F(Layers, ThatDoNotFitAreToldWithTheirPlaceAndWhatTheyAreGiven) {
  const std::string conv = "{kind: conv, channels: 4, kernel: 3}";
  EXPECT_THAT(refused("[{kind: flatten}, " + conv + "]"),
              AllOf(StartsWith("model.stack[1] (conv): needs pictures"), HasSubstr("[128]")));
  EXPECT_THAT(refused("[{kind: relu}, {kind: residual, body: [{kind: relu}, {kind: max_pool, "
                      "kernel: 9}]}]"),
              AllOf(StartsWith("model.stack[1].body[1] (max_pool): its kernel of 9"),
                    HasSubstr("[2, 8, 8]")));
  EXPECT_THAT(refused("[{kind: residual, body: [" + conv + "]}]"),
              AllOf(StartsWith("model.stack[0] (residual)"), HasSubstr("body makes [4, 6, 6]"),
                    HasSubstr("shortcut [2, 8, 8]")));
  EXPECT_THAT(refused("[{kind: flatten}, {kind: linear, outputs: 5}]"),
              AllOf(HasSubstr("ends with [5]"), HasSubstr("needs [3]")));
  EXPECT_THAT(refused("[{kind: conv, channels: 4, kernel: 3, groups: 3}]"),
              HasSubstr("groups (3)"));
  EXPECT_THAT(refused("[{kind: lstm, width: 4}]"), HasSubstr("needs sequences"));
  EXPECT_THAT(refused("[{kind: max_pool, kernel: 2, padding: 2}]"), HasSubstr("half its kernel"));
}

TEST_F(Layers, OverTokensBeginWithAnEmbedding) {
  input_.clear();
  EXPECT_THAT(names("[{kind: embedding, vocab: 256, width: 8}, {kind: lstm, width: 4}, {kind: "
                    "linear, bias: false}]"),
              ElementsAre("0.weight", "1.weight_ih_l0", "1.weight_hh_l0", "1.bias_ih_l0",
                          "1.bias_hh_l0", "2.weight"));
  EXPECT_THAT(refused("[{kind: embedding, vocab: 100, width: 8}, {kind: linear}]"),
              AllOf(HasSubstr("knows 100 tokens"), HasSubstr("256")));
}

TEST_F(Layers, SaySomethingOfEachStepWhereTheDataHasLabelsForEach) {
  const std::vector<TensorSpec> sample{{"input", DType::kF32, {7, 5}},
                                       {"labels", DType::kI64, {7}}};
  config::ModelConfig model;
  model.kind = config::ModelKind::kLayers;
  config::LayerConfig lstm{.kind = "lstm"}, linear{.kind = "linear"};
  lstm.width = 6;
  model.stack = {lstm, linear};
  const auto tagger = make_model(model, sample, 3);
  ASSERT_TRUE(tagger.ok()) << tagger.status().to_string();
  EXPECT_EQ((*tagger)->forward(at::zeros({4, 2, 5})).sizes(), (at::IntArrayRef{4, 2, 3}))
      << "of as many steps as the batch has";
  model.stack = {{.kind = "flatten"}, linear};
  EXPECT_THAT(make_model(model, sample, 3).status().message(),
              AllOf(HasSubstr("ends with [3]"), HasSubstr("needs [7, 3]")));
}

TEST_F(Layers, ThatNoMemoryHoldsAreRefusedBeforeTheyAreMade) {
  const std::string wide = "{kind: conv, channels: 1000000, kernel: 1}";
  EXPECT_THAT(refused("[" + wide + ", " + wide + "]"), HasSubstr("more weights than can be held"));
  EXPECT_THAT(refused("[{kind: adaptive_avg_pool, size: 100000}]"),
              HasSubstr("more than can be held"));
}

}  // namespace
}  // namespace stoker::model
