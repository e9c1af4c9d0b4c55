// Compares adapters of gpt2 and llama with PEFT (make_peft.py): loads each folder by its config.json and
// adapter_config.json, and compares logits, gradients and ten steps of AdamW. STOKER_PARITY_PEFT is a
// folder with newly generated ones to compare with instead of the golden ones, which are few.
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
#include "shared/checkpoint/peft.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/peft_config.h"
#include "shared/model/load_weights.h"
#include "shared/model/lora.h"
#include "shared/model/torch_dtype.h"
#include "shared/pretrained/merged_tensors.h"
#include "shared/pretrained/peft_settings.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parity {
namespace {

// As in make_peft.py.
constexpr int64_t kSteps = 10;
const config::AdamWConfig kOptimizer{
    .lr = 1e-3, .betas = {0.9, 0.95}, .eps = 1e-3, .weight_decay = 0.1};
constexpr double kMaxError = 1e-5;

bool has_generated_cases() { return std::getenv("STOKER_PARITY_PEFT") != nullptr; }

std::string peft_cases() {
  return has_generated_cases() ? std::getenv("STOKER_PARITY_PEFT") : STOKER_PARITY_GOLDEN "/peft";
}

std::vector<std::string> list_peft_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(peft_cases()))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

class PeftParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    auto expected = checkpoint::SafetensorsFile::open(folder() + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    expected_ = *std::move(expected);
    const auto json = read_file(folder() + "/config.json", config::kMaxHuggingFaceConfigBytes);
    const auto config = config::parse_huggingface_config(*json, "config.json");
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const auto text = read_file(folder() + "/adapter/adapter_config.json", 1 << 20);
    auto lora = config::parse_peft_config(*text, "adapter_config.json");
    ASSERT_TRUE(lora.ok()) << lora.status().to_string();
    lora->path = folder() + "/adapter";
    config_ = {.arch = config->arch,
               .pretrained = config::PretrainedConfig{.path = folder()},
               .lora = *lora};
    model_ = load(config_);
    ASSERT_NE(model_, nullptr);
  }

  static std::string folder() { return peft_cases() + "/" + GetParam(); }

  model::ModelPtr load(const config::ModelConfig& config) const {
    const int64_t length = expected_->find("tokens0")->shape[1];
    const auto made = model::make_model(config, {{"tokens", DType::kI64, {length}}}, 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return nullptr;
    pretrained::StateDictMapping mapping;
    Status loaded = model::load_pretrained(**made, config, mapping);
    if (loaded.ok() && config.lora) loaded = model::load_adapter(**made, config);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    return loaded.ok() ? *made : nullptr;
  }

  std::unique_ptr<checkpoint::SafetensorsFile> saved_adapter(const std::string& folder) const {
    checkpoint::TensorViews views;
    for (const auto& [name, tensor] : model::named_tensors(*model_))
      views.push_back({model::to_tensor_spec(name, tensor),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    EXPECT_TRUE(
        checkpoint::write_safetensors(default_file_system(), folder, "model.safetensors", views, {})
            .ok());
    auto file = checkpoint::SafetensorsFile::open(folder + "/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return *std::move(file);
  }

  checkpoint::BaseWeights base_weights() const {
    const auto& tensors = model_->adapter()->base;
    return {.path = folder(),
            .sha256 = model::base_digest(*model_),
            .tensors = {tensors.begin(), tensors.end()},
            .r = config_.lora->r,
            .lora_alpha = config_.lora->lora_alpha};
  }

  at::Tensor expected(const std::string& what) const {
    const TensorSpec* const spec = expected_->find(what);
    if (spec == nullptr) {
      ADD_FAILURE() << what << " is not in the file";
      return at::empty({0});
    }
    const at::Tensor tensor =
        at::empty(spec->shape, at::TensorOptions().dtype(model::to_scalar_type(spec->dtype)));
    EXPECT_TRUE(
        expected_->read(what, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}).ok());
    return tensor;
  }
  // The largest difference, relative to the largest element.
  void expect_close(const std::string& what, const at::Tensor& actual) const {
    const at::Tensor values = expected(what);
    ASSERT_EQ(actual.sizes(), values.sizes()) << what;
    const double error = (actual - values).abs().max().item<double>();
    EXPECT_LE(error, kMaxError * values.abs().max().item<double>()) << what;
  }
  void expect_close(const std::string& what, const model::NamedTensors& tensors) const {
    for (const auto& [name, tensor] : tensors) {
      const auto theirs = checkpoint::PeftNames(config_.name()).from_stoker(name);
      ASSERT_TRUE(theirs) << name;
      expect_close(what + theirs->name, theirs->is_transposed ? tensor.t() : tensor);
    }
  }
  at::Tensor logits_of(model::Model& model) const {
    const at::Tensor tokens = expected("tokens0");
    model.eval();
    return model.forward(tokens.narrow(1, 0, tokens.size(1) - 1)).detach();
  }

  std::unique_ptr<checkpoint::SafetensorsFile> expected_;
  config::ModelConfig config_;
  model::ModelPtr model_;
};

TEST_P(PeftParityTest, MatchesLogitsGradientsAndTrainingOfPeft) {
  const model::NamedTensors parameters = model::named_tensors(*model_);
  for (const auto& item : model_->named_parameters())
    EXPECT_EQ(item.value().requires_grad(), !model_->adapter()->base.contains(item.key()));
  const auto optimizer =
      train::Optimizer::create({.method = kOptimizer}, {.max_grad_norm = std::nullopt}, parameters);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  const std::string base = model::base_digest(*model_);
  std::vector<at::Tensor> losses;
  model_->train();
  for (int64_t step = 0; step < kSteps; ++step) {
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
    (*optimizer)->step(kOptimizer.lr);
    (*optimizer)->zero_grad();
  }
  expect_close("losses", at::stack(losses).detach());
  model::NamedTensors trained;
  for (const auto& [name, parameter] : parameters) trained.emplace_back(name, parameter.detach());
  expect_close("final/", trained);
  EXPECT_EQ(model::base_digest(*model_), base) << "the pretrained weights changed";
}

// What stokerctl export writes has the same adapter; check_peft.py loads those of generated cases with
// PEFT.
TEST_P(PeftParityTest, IsExportedAsTheSameAdapter) {
  const test::TemporaryDirectory scratch;
  const std::string exported = has_generated_cases() ? folder() + "/exported" : scratch / "out";
  ASSERT_TRUE(default_file_system().make_directory(exported).ok());
  const auto file = saved_adapter(scratch.path());
  const auto settings = pretrained::peft_settings(config_, base_weights(), file->tensors());
  ASSERT_TRUE(settings.ok()) << settings.status().to_string();
  test::write_whole(exported + "/adapter_config.json", *settings);
  const checkpoint::PeftNames names(config_.name());
  const std::vector<checkpoint::ExportPart> parts{
      {.name = "model", .file = file.get(), .rename = [&](std::string_view name) {
         return names.from_stoker(name);
       }}};
  auto out =
      checkpoint::NewFile::create(default_file_system(), exported + "/adapter_model.safetensors");
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  ASSERT_TRUE(checkpoint::export_safetensors(parts, {{"format", "pt"}}, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());

  config::ModelConfig read = config_;
  auto lora = config::parse_peft_config(*settings, "adapter_config.json");
  ASSERT_TRUE(lora.ok()) << lora.status().to_string();
  lora->path = exported;
  read.lora = *lora;
  const auto loaded = load(read);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->adapter()->base, model_->adapter()->base);
  for (const auto& [name, tensor] : model::named_tensors(*model_))
    EXPECT_TRUE(at::equal(tensor, loaded->named_parameters()[name])) << name;
}

TEST_P(PeftParityTest, HasTheSameLogitsAfterMerging) {
  const test::TemporaryDirectory scratch;
  const auto merged =
      pretrained::MergedTensors::open(config_, base_weights(), saved_adapter(scratch.path()));
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  const auto plain = model::make_model(
      {.arch = config_.arch}, {{"tokens", DType::kI64, {expected_->find("tokens0")->shape[1]}}}, 0);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  const Status loaded =
      model::load_tensors(model::named_tensors(**plain), **merged, "the merged model");
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const at::Tensor logits = logits_of(*model_);
  EXPECT_LE((logits_of(**plain) - logits).abs().max().item<double>(),
            kMaxError * logits.abs().max().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Folders, PeftParityTest, testing::ValuesIn(list_peft_cases()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stoker::parity
