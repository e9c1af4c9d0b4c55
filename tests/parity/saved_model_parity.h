// SavedModelParityTest: compares a model that was loaded from a folder of a Python library with what the
// library computed, in expected.safetensors: the logits and gradients of the first step, and the losses
// and parameters of its steps of AdamW. Batches are `tokens0` and `tokens1` of next-token prediction, of
// packed rows with `position_ids1` and `labels1`; or with `labels0` and `labels1` of classification, of
// tokens with their `lengths0`, or of `images0`.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
#include "shared/checkpoint/safetensors.h"
#include "shared/config/huggingface_config.h"
#include "shared/model/load_weights.h"
#include "shared/model/lora.h"
#include "shared/model/model.h"
#include "shared/model/torch_dtype.h"
#include "tests/parity/generated.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::parity {

// As in make_huggingface.py.
inline const config::AdamWConfig kAdamw{
    .lr = 1e-3, .betas = {0.9, 0.95}, .eps = 1e-3, .weight_decay = 0.1};
inline constexpr double kTolerance = 1e-5;          // of single precision
inline constexpr double kGradientTolerance = 5e-5;  // where it is not enough
inline constexpr int64_t kSepToken = 3;             // of make_bert.py
inline constexpr double kDoubleTolerance = 1e-12;

// The folders of one library: those of the environment variable, or else the golden ones.
struct ParityCases {
  const char* variable;
  const char* golden;

  bool is_generated() const { return generated(variable) != nullptr; }
  std::string folder() const { return is_generated() ? generated(variable) : golden; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      if (entry.is_directory()) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
};

class SavedModelParityTest : public testing::TestWithParam<std::string> {
 protected:
  // Opens expected.safetensors and reads config.json, or `vit_sizes`, into config_.
  void open(const std::string& folder) {
    ASSERT_NO_FATAL_FAILURE(open_expected(folder));
    if (has("vit_sizes")) return set_vit(folder);
    read_config(folder);
  }
  void open_expected(const std::string& folder) {
    at::set_num_threads(1);
    auto expected = checkpoint::SafetensorsFile::open(folder + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    expected_ = *std::move(expected);
    const TensorSpec* const logits = expected_->find("logits");
    is_double_ = logits != nullptr && logits->dtype == DType::kF64;
    if (has("labels0")) config_.num_classes = logits->shape.back();
  }
  void read_config(const std::string& folder) {
    const auto json = read_file(folder + "/config.json", config::kMaxHuggingFaceConfigBytes);
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    const auto config = config::parse_huggingface_config(*json, "config.json");
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    config_.arch = config->arch;
    config_.pretrained = config::PretrainedConfig{.path = folder};
    if (auto* const bert = std::get_if<config::BertConfig>(&config_.arch)) {
      bert->sep_token = kSepToken;
      if (is_per_token()) bert->pooling = config::BertPooling::kNone;
    }
  }

  // The library's name of a tensor of model_.
  virtual std::optional<checkpoint::HuggingFaceNames::Name> name_of(
      std::string_view tensor) const = 0;
  // Tensors of model_ as the library stores them, with names that name_of() knows.
  virtual model::NamedTensors as_stored(model::NamedTensors tensors) const { return tensors; }
  double tolerance() const { return is_double_ ? kDoubleTolerance : kTolerance; }
  virtual double tolerance_of(const std::string& /*what*/) const { return tolerance(); }
  // The tensor whose largest element differences of `what` are relative to. The softmax does not depend
  // on the biases of the keys, so their gradients are hardly more than rounding; with RoPE, they can be
  // small, which only single precision shows.
  std::string scale_of(const std::string& what) const {
    std::string scale = what;
    if (what.starts_with("gradient") && what.ends_with("key.bias"))
      scale.replace(scale.size() - 8, 8, "value.bias");
    if (!is_double_ && what.starts_with("gradient") && what.ends_with("k_proj.bias"))
      scale.replace(scale.size() - 11, 11, "v_proj.bias");
    return scale;
  }

  struct StepOutput {
    at::Tensor logits, loss;
  };
  bool has(const std::string& what) const { return expected_->find(what) != nullptr; }
  bool is_per_token() const {
    return has("labels0") && expected_->find("labels0")->shape.size() == 2;
  }

  // Of batch `batch`, "0" or "1".
  at::Tensor outputs_of(model::Model& model, const std::string& batch) const {
    if (has("images" + batch)) return model.forward(expected("images" + batch));
    const at::Tensor tokens = expected("tokens" + batch);
    if (has("position_ids" + batch))
      return model.forward_packed(tokens, expected("position_ids" + batch));
    if (!has("labels" + batch)) return model.forward(tokens.narrow(1, 0, tokens.size(1) - 1));
    if (!has("lengths" + batch)) return model.forward(tokens);
    return model.forward_padded(tokens, expected("lengths" + batch));
  }
  // The training step `step` of the library.
  StepOutput run_step(int64_t step) const {
    const std::string batch = std::to_string(step % 2);
    const at::Tensor logits = outputs_of(*model_, batch);
    const at::Tensor labels = has("labels" + batch)
                                  ? expected("labels" + batch)
                                  : expected("tokens" + batch).narrow(1, 1, logits.size(1));
    return {logits, at::cross_entropy_loss(logits.flatten(0, -2), labels.flatten())};
  }

  virtual std::vector<TensorSpec> samples() const {
    if (has("images0")) {
      const auto& shape = expected_->find("images0")->shape;
      return {{"input", DType::kF32, {shape.begin() + 1, shape.end()}}};
    }
    return {{"tokens", DType::kI64, {expected_->find("tokens0")->shape[1]}}};
  }

  model::ModelPtr load(const config::ModelConfig& config) const {
    auto made = model::make_model(config, samples(), 0);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return nullptr;
    if (is_double_) (*made)->to(at::kDouble);
    pretrained::StateDictMapping mapping;
    Status loaded = model::load_pretrained(**made, config, mapping);
    if (loaded.ok() && config.lora) loaded = model::load_adapter(**made, config);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    return loaded.ok() ? *made : nullptr;
  }

  // The tensors of model_, with the names of a checkpoint.
  std::unique_ptr<checkpoint::SafetensorsFile> save(const std::string& folder) const {
    checkpoint::TensorViews views;
    for (const auto& [name, tensor] : model::named_tensors(*model_))
      views.push_back({model::to_tensor_spec(name, tensor),
                       {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    const auto written = checkpoint::write_safetensors(default_file_system(), folder,
                                                       "model.safetensors", views, {});
    EXPECT_TRUE(written.ok()) << written.status().to_string();
    auto file = checkpoint::SafetensorsFile::open(folder + "/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *std::move(file) : nullptr;
  }

  // As stokerctl does: writes what save() has saved, with the names of the library.
  void export_tensors(const checkpoint::TensorRangeSource& saved, const std::string& path) const {
    const std::vector<checkpoint::ExportPart> parts{
        {.name = "model", .file = &saved, .rename = [this](std::string_view name) {
           return name_of(name);
         }}};
    auto out = checkpoint::NewFile::create(default_file_system(), path);
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    ASSERT_TRUE(checkpoint::export_safetensors(parts, {{"format", "pt"}}, *out, {}).ok());
    ASSERT_TRUE(out->commit().ok());
  }

  // That `other`, which was exported and loaded, has the tensors of model_.
  void expect_same_tensors(const model::ModelPtr& other) const {
    ASSERT_NE(other, nullptr);
    const auto ours = model::named_tensors(*model_), others = model::named_tensors(*other);
    ASSERT_EQ(ours.size(), others.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(others[i].first, ours[i].first);
      EXPECT_TRUE(at::equal(others[i].second, ours[i].second)) << ours[i].first;
    }
  }

  model::NamedTensors parameters() const {
    model::NamedTensors all;
    for (const auto& item : model_->named_parameters()) all.emplace_back(item.key(), item.value());
    return all;
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
  // The largest difference, relative to the largest element of scale_of().
  void expect_close(const std::string& what, const at::Tensor& actual) const {
    const at::Tensor values = expected(what);
    ASSERT_EQ(actual.sizes(), values.sizes()) << what;
    const double scale = expected(scale_of(what)).abs().max().item<double>();
    const double error = (actual - values).abs().max().item<double>();
    EXPECT_LE(error, tolerance_of(what) * scale) << what;
  }
  // By the names of the library.
  void expect_close(const std::string& what, const model::NamedTensors& tensors) const {
    for (const auto& [name, tensor] : as_stored(tensors)) {
      const auto theirs = name_of(name);
      ASSERT_TRUE(theirs) << name;
      expect_close(what + theirs->name, theirs->is_transposed ? tensor.t() : tensor);
    }
  }

  // Of a step that ends with `loss`.
  void expect_same_gradients(const std::string& what, const at::Tensor& loss,
                             const model::NamedTensors& parameters) const {
    loss.backward();
    model::NamedTensors gradients;
    for (const auto& [name, parameter] : parameters)
      gradients.emplace_back(name, parameter.grad().clone());
    expect_close(what, gradients);
  }

  void expect_same_training(const model::NamedTensors& parameters) const {
    const auto optimizer =
        train::Optimizer::create({.method = kAdamw}, {.max_grad_norm = std::nullopt}, parameters);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    const int64_t steps = expected("losses").size(0);
    std::vector<at::Tensor> losses;
    model_->train();
    for (int64_t step = 0; step < steps; ++step) {
      const auto [logits, loss] = run_step(step);
      losses.push_back(loss);
      if (step == 0) {
        expect_close("logits", logits.detach());
        expect_same_gradients("gradient/", loss, parameters);
      } else {
        loss.backward();
      }
      (*optimizer)->step(kAdamw.lr);
      (*optimizer)->zero_grad();
    }
    expect_close("losses", at::stack(losses).detach());
    model::NamedTensors trained;
    for (const auto& [name, parameter] : parameters) trained.emplace_back(name, parameter.detach());
    expect_close("final/", trained);
  }

  // In the order of VIT_SIZES of make_peft.py.
  void set_vit(const std::string& folder) {
    const at::Tensor sizes = expected("vit_sizes");
    const auto size = [&](int64_t i) { return sizes[i].item<int64_t>(); };
    config_.arch = config::VitConfig{.image_size = size(0),
                                     .patch_size = size(1),
                                     .num_layers = size(2),
                                     .num_heads = size(3),
                                     .hidden_dim = size(4),
                                     .mlp_dim = size(5)};
    config_.pretrained = config::PretrainedConfig{.path = folder + "/model.safetensors"};
  }

  std::unique_ptr<checkpoint::SafetensorsFile> expected_;
  config::ModelConfig config_;
  model::ModelPtr model_;
  bool is_double_ = false;
};

}  // namespace stoker::parity
