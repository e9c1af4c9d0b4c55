#include "shared/pretrained/merged_tensors.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::pretrained {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

checkpoint::OwnedTensor tensor(const std::string& name, std::vector<int64_t> shape,
                               const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{name, DType::kF32, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

// A linear layer "0" with an adapter of rank 1 and lora_alpha 2, and a layer "2" that is trained.
class MergedTensorsTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::vector<checkpoint::OwnedTensor>& tensors) const {
    ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), name,
                                              checkpoint::views_of(tensors), {})
                    .ok());
  }
  void rewrite(const std::string& name, const std::vector<checkpoint::OwnedTensor>& tensors) const {
    std::filesystem::remove(scratch_ / name);
    write(name, tensors);
  }
  void SetUp() override {
    write("base", {tensor("0.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), tensor("0.bias", {2}, {7, 8}),
                   tensor("2.weight", {1, 2}, {9, 9})});
    write("adapter",
          {tensor("2.weight", {1, 2}, {5, 6}), tensor("0.lora_A.weight", {1, 3}, {1, 0, -1}),
           tensor("0.lora_B.weight", {2, 1}, {10, 100})});
    config_.arch = config::MlpConfig{};
    config_.lora = config::LoraConfig{.r = 8, .lora_alpha = 2};  // the checkpoint's r counts
    config_.pretrained = config::PretrainedConfig{.path = scratch_ / "base"};
    Sha256 sum;
    const std::vector<float> bias{7, 8}, weight{1, 2, 3, 4, 5, 6};
    sum.update("0.bias F32 [2]\n");
    sum.update(std::as_bytes(std::span(bias)));
    sum.update("0.weight F32 [2, 3]\n");
    sum.update(std::as_bytes(std::span(weight)));
    base_ = {.path = "before",
             .sha256 = sum.finish_hex(),
             .tensors = {"0.bias", "0.weight"},
             .r = 1,
             .lora_alpha = 2};
  }
  Result<std::unique_ptr<MergedTensors>> open() const {
    auto adapter = checkpoint::SafetensorsFile::open(scratch_ / "adapter");
    EXPECT_TRUE(adapter.ok());
    return MergedTensors::open(config_, base_, *std::move(adapter));
  }
  static std::vector<float> values(const MergedTensors& merged, const std::string& name) {
    std::vector<float> values(static_cast<size_t>(merged.find(name)->elements()));
    EXPECT_TRUE(merged.read(name, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }

  test::TemporaryDirectory scratch_;
  config::ModelConfig config_;
  checkpoint::BaseWeights base_;
};

TEST_F(MergedTensorsTest, AddsScaledProductAndReplacesTrainedModules) {
  const auto merged = open();
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ((*merged)->tensors().size(), 3);
  EXPECT_THAT(values(**merged, "0.weight"), ElementsAre(21, 2, -17, 204, 5, -194));
  EXPECT_THAT(values(**merged, "0.bias"), ElementsAre(7, 8));
  EXPECT_THAT(values(**merged, "2.weight"), ElementsAre(5, 6));
}

TEST_F(MergedTensorsTest, ReadsParts) {
  const auto merged = open();
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  std::vector<float> two(2);
  ASSERT_TRUE((*merged)->read_part("0.weight", 8, std::as_writable_bytes(std::span(two))).ok());
  EXPECT_THAT(two, ElementsAre(-17, 204));
  EXPECT_EQ((*merged)->read_part("0.weight", 20, std::as_writable_bytes(std::span(two))).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((*merged)->read_part("1.weight", 0, {}).code(), StatusCode::kNotFound);
}

TEST_F(MergedTensorsTest, HasNewHeadThatThePretrainedFileLacks) {
  std::filesystem::remove(scratch_ / "base");
  write("base", {tensor("0.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), tensor("0.bias", {2}, {7, 8}),
                 tensor("2.weight", {9, 2}, std::vector<float>(18))});
  config_.pretrained->exclude = {"2.*"};
  const auto merged = open();
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_THAT(values(**merged, "2.weight"), ElementsAre(5, 6));
}

// With another shape than that of the trained layer.
TEST_F(MergedTensorsTest, RejectsPretrainedHeadOfAnotherShape) {
  rewrite("base", {tensor("0.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), tensor("0.bias", {2}, {7, 8}),
                   tensor("2.weight", {9, 2}, std::vector<float>(18))});
  const Status status = open().status();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("has 2.weight F32 [9, 2], expected 2.weight F32 [1, 2]"));
}

TEST_F(MergedTensorsTest, LeavesOutWhatTheModelDoesNotHave) {
  rewrite("base", {tensor("0.weight", {2, 3}, {1, 2, 3, 4, 5, 6}), tensor("0.bias", {2}, {7, 8}),
                   tensor("2.weight", {1, 2}, {9, 9}), tensor("other", {2}, {1, 1})});
  config_.pretrained->strict = false;
  const auto merged = open();
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_EQ((*merged)->tensors().size(), 3);
  EXPECT_EQ((*merged)->find("other"), nullptr);
}

TEST_F(MergedTensorsTest, RejectsMatricesThatDoNotFit) {
  const auto error_with = [&](const checkpoint::OwnedTensor& a, const checkpoint::OwnedTensor& b) {
    rewrite("adapter", {tensor("2.weight", {1, 2}, {5, 6}), a, b});
    const auto merged = open();
    EXPECT_TRUE(merged.ok()) << merged.status().to_string();
    std::vector<float> out(6);
    const Status status = (*merged)->read("0.weight", std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    return status.message();
  };
  EXPECT_THAT(error_with(tensor("0.lora_A.weight", {3}, {1, 0, -1}),
                         tensor("0.lora_B.weight", {2, 1}, {1, 1})),
              HasSubstr("expected [r, inputs] and [outputs, r]"));
  EXPECT_THAT(error_with(tensor("0.lora_A.weight", {2, 3}, {1, 0, -1, 1, 1, 1}),
                         tensor("0.lora_B.weight", {2, 1}, {1, 1})),
              HasSubstr("expected [r, inputs] and [outputs, r]"));
  EXPECT_THAT(error_with(tensor("0.lora_A.weight", {1, 3}, {1, 0, -1}),
                         tensor("0.lora_B.weight", {3, 1}, {1, 1, 1})),
              HasSubstr("0: the weight is not 3 x 3 as its adapter"));
}

// c_attn.weight is stored transposed.
TEST_F(MergedTensorsTest, RejectsTransposedWeightThatIsNoMatrix) {
  const std::string folder = scratch_ / "gpt2";
  ASSERT_TRUE(default_file_system().make_directory(folder).ok());
  test::write_whole(folder + "/config.json", R"({"model_type": "gpt2"})");
  write("gpt2/model.safetensors", {tensor("h.0.attn.c_attn.weight", {5}, {1, 2, 3, 4, 5})});
  write("vector", {tensor("blocks.0.qkv.lora_A.weight", {1, 1}, {1}),
                   tensor("blocks.0.qkv.lora_B.weight", {5, 1}, {1, 1, 1, 1, 1})});
  config_.arch = config::Gpt2Config{};
  config_.pretrained->path = folder;
  base_.tensors = {"blocks.0.qkv.weight"};
  auto adapter = checkpoint::SafetensorsFile::open(scratch_ / "vector");
  ASSERT_TRUE(adapter.ok());
  const Status status = MergedTensors::open(config_, base_, *std::move(adapter)).status();
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("expected 2 dimensions"));
}

// transformers has three matrices where a vit has one.
TEST_F(MergedTensorsTest, JoinsQueriesKeysAndValuesOfAFolder) {
  const std::string folder = scratch_ / "vit", theirs = "vit.encoder.layer.0.attention.attention.",
                    ours = "encoder.layers.encoder_layer_0.self_attention.";
  ASSERT_TRUE(default_file_system().make_directory(folder).ok());
  test::write_whole(folder + "/config.json", R"({"model_type": "vit"})");
  write("vit/model.safetensors", {tensor("vit.embeddings.cls_token", {1}, {0}),
                                  tensor(theirs + "key.weight", {1, 2}, {3, 4}),
                                  tensor(theirs + "query.weight", {1, 2}, {1, 2}),
                                  tensor(theirs + "value.weight", {1, 2}, {5, 6})});
  write("attention", {tensor(ours + "lora_A.weight", {1, 2}, {1, 0}),
                      tensor(ours + "lora_B.weight", {3, 1}, {10, 20, 30})});
  config_.arch = config::VitConfig{};
  config_.pretrained = config::PretrainedConfig{.path = folder, .strict = false};
  base_.tensors = {ours + "in_proj_weight"};
  const std::vector<float> joined{1, 2, 3, 4, 5, 6};
  Sha256 sum;
  sum.update(ours + "in_proj_weight F32 [3, 2]\n");
  sum.update(std::as_bytes(std::span(joined)));
  base_.sha256 = sum.finish_hex();
  auto adapter = checkpoint::SafetensorsFile::open(scratch_ / "attention");
  ASSERT_TRUE(adapter.ok());
  const auto merged = MergedTensors::open(config_, base_, *std::move(adapter));
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  EXPECT_THAT(values(**merged, ours + "in_proj_weight"), ElementsAre(21, 2, 43, 4, 65, 6));
}

TEST_F(MergedTensorsTest, RequiresPretrainedWeights) {
  config_.lora.reset();  // does not matter
  EXPECT_TRUE(open().ok());
  config_.pretrained.reset();
  EXPECT_EQ(open().status().code(), StatusCode::kMismatch);
  EXPECT_THAT(open().status().message(), HasSubstr("model.pretrained is not set"));
}

TEST_F(MergedTensorsTest, RejectsOtherPretrainedWeights) {
  std::filesystem::remove(scratch_ / "base");
  EXPECT_EQ(open().status().code(), StatusCode::kNotFound);
  write("base", {tensor("0.weight", {2, 3}, {1, 2, 3, 4, 5, 7}), tensor("0.bias", {2}, {7, 8}),
                 tensor("2.weight", {1, 2}, {9, 9})});
  EXPECT_THAT(open().status().message(),
              HasSubstr("has other weights than those that the adapter"));
  std::filesystem::remove(scratch_ / "base");
  write("base", {tensor("0.bias", {2}, {7, 8}), tensor("2.weight", {1, 2}, {9, 9})});
  EXPECT_THAT(open().status().message(), HasSubstr("has no 0.weight"));
}

}  // namespace
}  // namespace stoker::pretrained
