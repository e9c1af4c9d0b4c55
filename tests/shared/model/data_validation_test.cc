// A model that is incompatible with its data is rejected before training; the message names both
// sides.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/model.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Status made(config::ModelVariant arch, std::vector<int64_t> input) {
  const auto model =
      make_model({.arch = std::move(arch)},
                 {{"input", DType::kU8, std::move(input)}, {"label", DType::kI64, {}}}, 3);
  return model.ok() ? Status() : model.status();
}

TEST(ModelInputValidationTest, RejectsTooSmallImagesWithBothSizes) {
  EXPECT_THAT(made(config::AlexnetConfig{.hidden_dim = 8}, {3, 62, 80}).message(),
              AllOf(HasSubstr("alexnet"), HasSubstr("at least 63 x 63"), HasSubstr("[3, 62, 80]")));
  EXPECT_THAT(made(config::VggConfig{.depth = 11, .hidden_dim = 8}, {3, 32, 31}).message(),
              AllOf(HasSubstr("vgg11"), HasSubstr("at least 32 x 32"), HasSubstr("[3, 32, 31]")));
}

TEST(ModelInputValidationTest, RejectsImagesNotDivisibleIntoVitPatches) {
  config::VitConfig config{.patch_size = 4, .num_layers = 6, .num_heads = 6, .hidden_dim = 12};
  const auto rejected = [&](std::vector<int64_t> input) {
    return made(config, std::move(input)).message();
  };
  EXPECT_EQ(rejected({3, 16, 16}), "");
  EXPECT_THAT(rejected({3, 16, 20}), AllOf(HasSubstr("square"), HasSubstr("[3, 16, 20]")));
  EXPECT_THAT(rejected({3, 18, 18}), AllOf(HasSubstr("patch_size is 4"), HasSubstr("[3, 18, 18]")));
  config.image_size = 32;
  EXPECT_THAT(rejected({3, 16, 16}), AllOf(HasSubstr("32 x 32"), HasSubstr("[3, 16, 16]")));
}

TEST(ModelInputValidationTest, RejectsImagesTooSmallForAuxiliaryHead) {
  EXPECT_THAT(
      made(config::InceptionV3Config{}, {3, 298, 298}).message(),
      AllOf(HasSubstr("with aux_logits"), HasSubstr("299 x 299"), HasSubstr("[3, 298, 298]")));
}

TEST(ModelInputValidationTest, RejectsNonImageInputs) {
  EXPECT_EQ(made(config::AlexnetConfig{}, {3072}).code(), StatusCode::kMismatch);
  EXPECT_EQ(made(config::VggConfig{.depth = 11}, {3072}).code(), StatusCode::kMismatch);
}

TEST(ModelInputValidationTest, RejectsNonSequenceInputs) {
  const config::ModelConfig config{.arch = config::BlstmConfig{}};
  const auto rejected = [&](const TensorSpec& values) {
    const auto model = make_model(config, {values, {"label", DType::kI64, {}}}, 3);
    return model.ok() ? std::string() : model.status().message();
  };
  EXPECT_EQ(rejected({"input", DType::kF32, {5, 4}}), "");
  EXPECT_EQ(rejected({"tokens", DType::kI32, {5}}), "");
  EXPECT_THAT(rejected({"input", DType::kF32, {3, 16, 16}}),
              AllOf(HasSubstr("model blstm needs sequences"), HasSubstr("[3, 16, 16]")));
  EXPECT_THAT(rejected({"input", DType::kF32, {5}}), HasSubstr("needs sequences"));
}

TEST(ModelInputValidationTest, RejectsTokensBeyondVocabSize) {
  const config::ModelConfig config{.arch = config::BlstmConfig{.hidden_size = 4, .vocab_size = 8}};
  const auto model =
      make_model(config, {{"tokens", DType::kI32, {2}}, {"label", DType::kI64, {}}}, 3);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ((*model)->forward(at::tensor({0, 7}, at::kLong).view({1, 2})).sizes(),
            (at::IntArrayRef{1, 3}));
  for (const int64_t token : {-1, 8}) {
    try {
      (*model)->forward(at::tensor(std::vector<int64_t>{0, token}, at::kLong).view({1, 2}));
      FAIL() << token;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("below model.vocab_size (8)"));
    }
  }
}

TEST(ModelInputValidationTest, RejectsUnknownDepths) {
  EXPECT_THAT(made(config::VggConfig{.depth = 12}, {3, 32, 32}).message(),
              HasSubstr("model.name: unknown model vgg12"));
  EXPECT_THAT(made(config::ResnetConfig{.depth = 100}, {3, 32, 32}).message(),
              HasSubstr("model.name: unknown model resnet100"));
}

}  // namespace
}  // namespace stoker::model
