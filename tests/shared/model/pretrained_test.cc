// model.pretrained loads the values of every supported kind of file.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/store.h"
#include "shared/model/load_weights.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/numpy_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/torch_files.h"

namespace stoker::model {
namespace {

using namespace test::torch_files;
using test::bytes_of;

class LoadPretrainedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const config::ModelConfig config{.arch = config::MlpConfig{.hidden_sizes = {}}};
    const std::vector<TensorSpec> sample = {{"input", DType::kF32, {3}},
                                            {"label", DType::kI64, {}}};
    auto made = make_model(config, sample, 2);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    model_ = *made;
  }
  at::Tensor find_tensor_value(const std::string& name) {
    for (const auto& [each, value] : named_tensors(*model_))
      if (each == name) return value.detach().clone();
    ADD_FAILURE() << name;
    return {};
  }
  Status load(const std::string& file) {
    config_.path = scratch_ / file;
    return load_pretrained(*model_, {.arch = config::MlpConfig{}, .pretrained = config_}, mapping_);
  }
  void expect_loaded(const Status& status) {
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(at::equal(find_tensor_value("0.weight"), kWeight)) << find_tensor_value("0.weight");
    EXPECT_TRUE(at::equal(find_tensor_value("0.bias"), kBias)) << find_tensor_value("0.bias");
  }
  static checkpoint::OwnedTensor to_owned_tensor(const std::string& name,
                                                 const at::Tensor& tensor) {
    const auto* const bytes = static_cast<const std::byte*>(tensor.data_ptr());
    return {{name, DType::kF32, tensor.sizes().vec()}, {bytes, bytes + tensor.nbytes()}};
  }
  checkpoint::TensorViews views() {
    weights_ = {to_owned_tensor("0.weight", kWeight), to_owned_tensor("0.bias", kBias)};
    return checkpoint::views_of(weights_);
  }

  const at::Tensor kWeight = at::tensor({0.f, 1.f, 2.f, 3.f, 4.f, 5.f}).reshape({2, 3});
  const at::Tensor kBias = at::tensor({-1.f, 0.5f});
  test::TemporaryDirectory scratch_;
  config::PretrainedConfig config_;
  ModelPtr model_;
  pretrained::StateDictMapping mapping_;
  std::vector<checkpoint::OwnedTensor> weights_;
};

TEST_F(LoadPretrainedTest, LoadsSafetensors) {
  ASSERT_TRUE(
      checkpoint::write_safetensors(default_file_system(), scratch_.path(), "w", views(), {}).ok());
  expect_loaded(load("w"));
}

TEST_F(LoadPretrainedTest, LoadsVerifiedCheckpointAndRejectsCorruptOne) {
  checkpoint::CheckpointStore store(scratch_.path(), default_file_system());
  ASSERT_TRUE(
      store.commit({.manifest = {.step = 7}, .model = views(), .optim = {}, .state = {}}).ok());
  expect_loaded(load("step-000000007"));
  test::write_whole(scratch_ / "step-000000007/model.safetensors", "corrupt");
  EXPECT_EQ(load("step-000000007").code(), StatusCode::kCorrupt);
}

// The file has a transposed weight, as that of a Conv1D, a half-precision bias, and other names in
// a nested dict.
TEST_F(LoadPretrainedTest, LoadsTorchFileWithKeyMappingViewsAndHalves) {
  const std::string weight = parameter(tensor("FloatStorage", "0", 6, 0, {2, 3}, {1, 2}));
  const std::string halves = tensor("HalfStorage", "1", 2, 0, {2}, {1});
  const std::string root = dict(
      {{text("state_dict"),
        ordered_dict({{text("module.fc.weight"), weight}, {text("module.fc.bias"), halves}})}});
  test::write_whole(scratch_ / "w.pt",
                    torch_file(pickled(root), {{"0", bytes_of<float>({0, 3, 1, 4, 2, 5})},
                                               {"1", bytes_of<uint16_t>({0xbc00, 0x3800})}}));
  config_.key_mapping = {{.from = "module.fc.*", .to = "0.*"}};
  expect_loaded(load("w.pt"));
}

TEST_F(LoadPretrainedTest, PreservesExcludedTensors) {
  const at::Tensor before = find_tensor_value("0.bias");
  ASSERT_TRUE(
      checkpoint::write_safetensors(default_file_system(), scratch_.path(), "w", views(), {}).ok());
  config_.exclude = {"*.bias"};
  const Status status = load("w");
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(at::equal(find_tensor_value("0.bias"), before));
  EXPECT_TRUE(at::equal(find_tensor_value("0.weight"), kWeight));
}

TEST_F(LoadPretrainedTest, ChangesNothingWhenFileDoesNotMatch) {
  const at::Tensor weight = find_tensor_value("0.weight"), bias = find_tensor_value("0.bias");
  weights_ = {to_owned_tensor("0.weight", kWeight), to_owned_tensor("0.bias", kWeight)};
  ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), "w",
                                            checkpoint::views_of(weights_), {})
                  .ok());
  const Status status = load("w");
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("expected 0.bias F32 [2]"));
  EXPECT_TRUE(at::equal(find_tensor_value("0.weight"), weight));
  EXPECT_TRUE(at::equal(find_tensor_value("0.bias"), bias));
}

TEST_F(LoadPretrainedTest, ReportsMissingOrUnknownFile) {
  EXPECT_EQ(load("nothing").code(), StatusCode::kNotFound);
  test::write_whole(scratch_ / "text", "text\n");
  EXPECT_THAT(load("text").message(), ::testing::HasSubstr("is neither"));
}

}  // namespace
}  // namespace stoker::model
