// Compares gpt2 and llama with transformers (make_huggingface.py): loads each folder by its
// config.json, and compares logits, gradients and ten steps of AdamW. STOKER_PARITY_HUGGINGFACE is
// a folder with newly generated ones to compare with instead of the golden ones, which are few and
// in single precision.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "shared/base/file.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/config/huggingface_config.h"
#include "shared/model/load_weights.h"
#include "shared/model/torch_dtype.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

// As in make_huggingface.py.
constexpr int64_t kAdamwSteps = 10;
const config::AdamWConfig kAdamw{
    .lr = 1e-3, .betas = {0.9, 0.95}, .eps = 1e-3, .weight_decay = 0.1};

constexpr double kTolerance = 1e-5, kDoubleTolerance = 1e-12;

bool is_generated() { return std::getenv("STOKER_PARITY_HUGGINGFACE") != nullptr; }

std::string folder_of_cases() {
  return is_generated() ? std::getenv("STOKER_PARITY_HUGGINGFACE")
                        : STOKER_PARITY_GOLDEN "/huggingface";
}

std::vector<std::string> all_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of_cases()))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class HuggingFaceParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    const std::string folder = folder_of_case();
    auto expected = checkpoint::SafetensorsFile::open(folder + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    expected_ = *std::move(expected);
    is_double_ = expected_->find("logits")->dtype == DType::kF64;
    const auto json = read_file(folder + "/config.json", config::kMaxHuggingFaceConfigBytes);
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    const auto config = config::parse_huggingface_config(*json, "config.json");
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    config_ = {.arch = config->arch, .pretrained = config::PretrainedConfig{.path = folder}};
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
    names_ = checkpoint::HuggingFaceNames::find(config_.name());
  }

  static std::string folder_of_case() { return folder_of_cases() + "/" + GetParam(); }

  model::ModelPtr load(const config::ModelConfig& config) const {
    const int64_t length = expected_->find("tokens0")->shape[1];
    auto made = model::make_model(config, {{"tokens", DType::kI64, {length}}}, 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return nullptr;
    if (is_double_) (*made)->to(at::kDouble);
    pretrained::StateDictMapping mapping;
    const Status loaded = model::load_pretrained(**made, config, mapping);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    return loaded.ok() ? *made : nullptr;
  }

  // As stokerctl does, from a file with the names of a checkpoint.
  void export_to(const std::string& folder) const {
    checkpoint::TensorViews views;
    for (const auto& [name, tensor] : model::named_tensors(*model_))
      views.push_back({model::to_tensor_spec(name, tensor),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    const test::TemporaryDirectory scratch;
    const auto written = checkpoint::write_safetensors(default_file_system(), scratch.path(),
                                                       "model.safetensors", views, {});
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    const auto file = checkpoint::SafetensorsFile::open(scratch / "model.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    const std::vector<checkpoint::ExportPart> parts{
        {.name = "model", .file = file->get(), .rename = [this](std::string_view name) {
           return names_->from_stoker(name);
         }}};
    auto out = checkpoint::NewFile::create(default_file_system(), folder + "/model.safetensors");
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    ASSERT_TRUE(checkpoint::export_safetensors(parts, {{"format", "pt"}}, *out, {}).ok());
    ASSERT_TRUE(out->commit().ok());
  }

  at::Tensor expected(const std::string& what) const {
    const TensorSpec* const spec = expected_->find(what);
    if (spec == nullptr) {
      ADD_FAILURE() << what << " is not in the file";
      return at::empty({0});
    }
    const at::Tensor tensor =
        at::empty(spec->shape, at::TensorOptions().dtype(model::to_scalar_type(spec->dtype)));
    const Status status =
        expected_->read(what, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
    EXPECT_TRUE(status.ok()) << status.to_string();
    return tensor;
  }
  // The largest difference, relative to the largest element.
  void expect_close(const std::string& what, const at::Tensor& actual) const {
    const at::Tensor values = expected(what);
    ASSERT_EQ(actual.sizes(), values.sizes()) << what;
    const double scale = values.abs().max().item<double>();
    const double error = (actual - values).abs().max().item<double>();
    EXPECT_LE(error, (is_double_ ? kDoubleTolerance : kTolerance) * scale) << what;
  }
  // By the names of transformers.
  void expect_close(const std::string& what, const model::NamedTensors& tensors) const {
    for (const auto& [name, tensor] : tensors) {
      const auto theirs = names_->from_stoker(name);
      ASSERT_TRUE(theirs) << name;
      expect_close(what + theirs->name, theirs->is_transposed ? tensor.t() : tensor);
    }
  }

  std::unique_ptr<checkpoint::SafetensorsFile> expected_;
  bool is_double_ = false;
  config::ModelConfig config_;
  model::ModelPtr model_;
  const checkpoint::HuggingFaceNames* names_ = nullptr;
};

TEST_P(HuggingFaceParityTest, MatchesLogitsGradientsAndTrainingOfTransformers) {
  model::NamedTensors parameters;
  for (const auto& item : model_->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  const auto optimizer =
      train::Optimizer::create({.method = kAdamw}, {.max_grad_norm = std::nullopt}, parameters);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<at::Tensor> losses;
  model_->train();
  for (int64_t step = 0; step < kAdamwSteps; ++step) {
    const at::Tensor tokens = expected("tokens" + std::to_string(step % 2));
    const int64_t time = tokens.size(1) - 1;
    const at::Tensor logits = model_->forward(tokens.narrow(1, 0, time));
    losses.push_back(
        at::cross_entropy_loss(logits.flatten(0, 1), tokens.narrow(1, 1, time).flatten()));
    losses.back().backward();
    if (step == 0) {
      expect_close("logits", logits.detach());
      model::NamedTensors gradients;
      for (const auto& [name, parameter] : parameters)
        gradients.emplace_back(name, parameter.grad().clone());
      expect_close("gradient/", gradients);
    }
    (*optimizer)->step(kAdamw.lr);
    (*optimizer)->zero_grad();
  }
  expect_close("losses", at::stack(losses).detach());
  model::NamedTensors final_weights;
  for (const auto& [name, parameter] : parameters)
    final_weights.emplace_back(name, parameter.detach());
  expect_close("final/", final_weights);
}

// The folder that stokerctl export writes has the same model;
// check_huggingface.py loads those of generated cases with transformers.
TEST_P(HuggingFaceParityTest, IsExportedAsTheSameModel) {
  if (is_double_) GTEST_SKIP() << "exported in single precision";
  const test::TemporaryDirectory scratch;
  const std::string folder = is_generated() ? folder_of_case() + "/exported" : scratch / "out";
  ASSERT_TRUE(default_file_system().make_directory(folder).ok());
  const auto json = config::format_huggingface_config(config_.arch);
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  test::write_whole(folder + "/config.json", *json);
  export_to(folder);
  config::ModelConfig exported{.arch = config_.arch,
                               .pretrained = config::PretrainedConfig{.path = folder}};
  const auto loaded = load(exported);
  ASSERT_NE(loaded, nullptr);
  for (const auto& [name, tensor] : model::named_tensors(*model_))
    EXPECT_TRUE(at::equal(tensor, loaded->named_parameters()[name])) << name;
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingFaceParityTest, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
