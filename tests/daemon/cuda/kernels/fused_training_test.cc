// Training steps with the fused kernels, compiled for the host, compared with LibTorch's.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>

#include "daemon/train/optimizer.h"
#include "daemon/train/train_step.h"
#include "shared/model/autocast.h"
#include "shared/model/caption_model.h"
#include "shared/model/model.h"
#include "shared/task/task.h"
#include "tests/daemon/cuda/kernels/host_kernels_scope.h"

namespace stoker::train {
namespace {

constexpr int64_t kContext = 12, kVocab = 37;

// The arguments of the last update of AdamW, which a captured step has, too.
std::vector<model::AdamwTensor> adamw_tensors;
model::AdamwOptions adamw_options{};

int adamw_calls = 0, cross_entropy_calls = 0, gelu_calls = 0, norm_calls = 0, swiglu_calls = 0,
    rope_calls = 0;

// The host's kernels, of which some count their calls.
model::KernelTable counting_table() {
  model::KernelTable table = cuda::host_kernels();
  table.adamw = [](const model::AdamwTensor* tensors, int64_t count,
                   const model::AdamwOptions& options) {
    ++adamw_calls;
    adamw_tensors.assign(tensors, tensors + count);
    adamw_options = options;
    cuda::host_kernels().adamw(tensors, count, options);
  };
  table.cross_entropy = [](const model::CrossEntropyBatch& batch) {
    ++cross_entropy_calls;
    cuda::host_kernels().cross_entropy(batch);
  };
  table.gelu = [](const model::GeluRows& rows) {
    ++gelu_calls;
    cuda::host_kernels().gelu(rows);
  };
  table.norm = [](const model::NormRows& rows) {
    ++norm_calls;
    cuda::host_kernels().norm(rows);
  };
  table.swiglu = [](const model::SwigluValues& values) {
    ++swiglu_calls;
    cuda::host_kernels().swiglu(values);
  };
  table.rope = [](const model::RopeRotation& rotation) {
    ++rope_calls;
    cuda::host_kernels().rope(rotation);
  };
  return table;
}
const model::KernelTable kCountingTable = counting_table();

void reset_calls() {
  adamw_calls = cross_entropy_calls = gelu_calls = norm_calls = swiglu_calls = rope_calls = 0;
}

class FusedTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override { reset_calls(); }
  void TearDown() override { select({}); }
  static void select(const model::KernelTable& table) {
    model::use_fused_kernels(c10::DeviceType::CPU, table);
  }
};

struct Training {
  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  NamedTensors parameters;
  std::vector<double> losses;

  Training(const config::ModelConfig& config, const config::TrainConfig& train,
           const config::OptimizerConfig& optimizer_config = {.method = config::AdamWConfig{}}) {
    const std::vector<TensorSpec> sample{{"tokens", DType::kI32, {kContext + 1}}};
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(5);
    model = *model::make_model(config, sample, kVocab);
    for (const auto& item : model->named_parameters())
      if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
    task = *task::make_task({config::LanguageModelingTask{}}, nullptr, sample, kVocab);
    optimizer = *Optimizer::create(optimizer_config, train, parameters);
    optimizer->scale_in_kernels();
    step = std::make_unique<TrainStep>(*model, *task, *optimizer, train);
  }

  // The same tokens in each training.
  void run(int steps, int64_t micro_batches) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(9);
    for (int i = 0; i < steps; ++i) {
      optimizer->set_lr(0.01);
      for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
        step->add({at::randint(0, kVocab, {4, kContext + 1}, at::kInt)}, micro_batch == 0);
      losses.push_back(step->loss().item<double>());
      (void)step->finish_if_finite(/*and_loss=*/true);
    }
  }
};

config::ModelConfig gpt2(bool tie_weights) {
  return {.arch = config::Gpt2Config{.num_layers = 2,
                                     .num_heads = 2,
                                     .embed_dim = 16,
                                     .context_length = kContext,
                                     .vocab_size = kVocab,
                                     .tie_weights = tie_weights,
                                     .dropout = 0}};
}

config::ModelConfig llama() {
  return {.arch = config::LlamaConfig{.num_layers = 2,
                                      .num_heads = 4,
                                      .num_key_value_heads = 2,
                                      .embed_dim = 32,
                                      .context_length = kContext,
                                      .vocab_size = kVocab}};
}

config::TrainConfig bf16(int64_t micro_batches = 1) {
  config::TrainConfig train;
  train.precision = config::Precision::kBf16;
  train.gradient_accumulation_steps = micro_batches;
  train.max_grad_norm = 0.5;
  return train;
}

TEST_F(FusedTrainingTest, LearnsAsWithLibTorchsKernels) {
  for (const bool tie_weights : {false, true}) {
    for (const int64_t micro_batches : {1, 3}) {
      select({});
      Training plain(gpt2(tie_weights), bf16(micro_batches));
      plain.run(15, micro_batches);
      EXPECT_EQ(adamw_calls, 0);
      select(kCountingTable);
      Training fused(gpt2(tie_weights), bf16(micro_batches));
      fused.run(15, micro_batches);
      EXPECT_EQ(adamw_calls, 15);
      EXPECT_EQ(cross_entropy_calls, 15 * micro_batches);
      EXPECT_EQ(gelu_calls, 15 * micro_batches * 2);
      EXPECT_EQ(norm_calls, 15 * micro_batches * (2 * 2 + 1));
      reset_calls();
      for (size_t i = 0; i < plain.losses.size(); ++i)
        EXPECT_NEAR(fused.losses[i], plain.losses[i], 0.01) << "step " << i;
    }
  }
}

std::vector<std::string_view> called_kernels() {
  std::vector<std::string_view> names;
  const std::pair<std::string_view, int> calls[] = {
      {"adamw", adamw_calls}, {"cross_entropy", cross_entropy_calls},
      {"gelu", gelu_calls},   {"norm", norm_calls},
      {"rope", rope_calls},   {"swiglu", swiglu_calls}};
  for (const auto& [name, count] : calls)
    if (count > 0) names.push_back(name);
  return names;
}

TEST_F(FusedTrainingTest, LearnsAsWithLibTorchsKernelsWithEachKernelAlone) {
  for (const config::FusedKernelSwitch& each : config::kFusedKernelSwitches) {
    config::FusedKernelsConfig config;
    config.*each.is_enabled = true;
    const bool is_of_llama = each.name == "rope" || each.name == "swiglu";
    const config::ModelConfig model = is_of_llama ? llama() : gpt2(false);
    SCOPED_TRACE(each.name);
    select({});
    Training plain(model, bf16());
    plain.run(8, 1);
    select(model::enabled_kernels(kCountingTable, config));
    reset_calls();
    Training fused(model, bf16());
    fused.run(8, 1);
    EXPECT_THAT(called_kernels(), testing::ElementsAre(each.name));
    for (size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(fused.losses[i], plain.losses[i], 0.01) << "step " << i;
    // Only AdamW's kernel writes copies of weights.
    const bool has_copies = std::ranges::any_of(fused.parameters, [&](const auto& item) {
      return fused.optimizer->weight_copies().maybe_target(item.second) != nullptr;
    });
    EXPECT_EQ(has_copies, each.name == "adamw");
  }
}

TEST_F(FusedTrainingTest, SwitchesBelongToDifferentKernels) {
  const model::KernelTable all = cuda::host_kernels();
  EXPECT_EQ(model::enabled_kernels(all, {}), model::KernelTable());
  EXPECT_EQ(model::enabled_kernels(all, config::kAllFusedKernels), all);
  for (const config::FusedKernelSwitch& each : config::kFusedKernelSwitches) {
    config::FusedKernelsConfig others = config::kAllFusedKernels;
    EXPECT_TRUE(others.*each.is_enabled);
    others.*each.is_enabled = false;
    EXPECT_NE(model::enabled_kernels(all, others), all) << each.name;
  }
}

// Both differ from F32 by the rounding of BF16, the fused kernels less: they round intermediate values
// less often.
TEST_F(FusedTrainingTest, TrainsLlamaAsPreciselyAsLibTorchsKernels) {
  config::TrainConfig f32 = bf16();
  f32.precision = config::Precision::kFp32;
  Training exact(llama(), f32), plain(llama(), bf16());
  exact.run(15, 1);
  plain.run(15, 1);
  select(kCountingTable);
  Training fused(llama(), bf16());
  fused.run(15, 1);
  EXPECT_EQ(norm_calls, 15 * 5);
  EXPECT_EQ(swiglu_calls, 15 * 2);
  EXPECT_EQ(rope_calls, 15 * 2 * 4);  // of queries and keys, and back
  double plain_error = 0, fused_error = 0;
  for (size_t i = 0; i < exact.losses.size(); ++i) {
    plain_error += std::abs(plain.losses[i] - exact.losses[i]);
    fused_error += std::abs(fused.losses[i] - exact.losses[i]);
  }
  EXPECT_LT(fused_error, 2 * plain_error + 0.01);
  EXPECT_NEAR(fused.losses.front(), exact.losses.front(), 0.01);
}

// Of all parameters, in one step of a model over images.
std::vector<at::Tensor> image_gradients(const config::ModelConfig& config,
                                        std::optional<at::ScalarType> autocast) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  std::vector<TensorSpec> sample{{"input", DType::kF32, {3, 8, 8}}};
  const bool is_captioner = std::holds_alternative<config::CaptionerConfig>(config.arch);
  if (is_captioner) {
    sample.push_back({"labels", DType::kI64, {1, kContext}});
    sample.push_back({"references", DType::kU8, {64}});
  } else {
    sample.push_back({"label", DType::kI64, {}});
  }
  const model::ModelPtr model = *model::make_model(config, sample, kVocab);
  const at::Tensor images = at::rand({4, 3, 8, 8}),
                   tokens = at::randint(0, kVocab, {4, kContext}, at::kLong);
  at::Tensor logits;
  {
    const model::Autocast shorter(autocast, c10::DeviceType::CPU);
    auto* const captioner = dynamic_cast<model::CaptionModel*>(model.get());
    logits = is_captioner ? captioner->decode(captioner->encode(images), tokens)
                          : model->forward(images);
  }
  logits.to(at::kFloat).square().mean().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

double gradient_distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]).square().sum().item<double>();
  return std::sqrt(sum);
}

TEST_F(FusedTrainingTest, ComputesImageModelsAsPreciselyAsLibTorchsKernels) {
  config::ModelConfig vit{
      .arch = config::VitConfig{
          .patch_size = 4, .num_layers = 2, .num_heads = 2, .hidden_dim = 16, .mlp_dim = 32}};
  vit.init = {{"heads.head.weight", config::NormalInit{.std = 0.1}}};  // 0 by default
  const config::ModelConfig captioner{
      .arch = config::CaptionerConfig{.encoder = {.name = config::ImageEncoder::kResnet8},
                                      .decoder = {.name = config::CaptionDecoder::kTransformer,
                                                  .hidden_size = 16,
                                                  .num_layers = 2,
                                                  .num_heads = 2,
                                                  .dropout = 0},
                                      .max_length = kContext}};
  for (const auto& [config, norms] : {std::pair(vit, 2 * 2 + 1), {captioner, 2 * 3 + 1}}) {
    select({});
    const auto exact = image_gradients(config, {}), plain = image_gradients(config, at::kBFloat16);
    reset_calls();
    select(kCountingTable);
    const auto fused = image_gradients(config, at::kBFloat16);
    EXPECT_EQ(norm_calls, norms);
    EXPECT_EQ(gelu_calls, 2);
    EXPECT_GT(gradient_distance(fused, plain), 0);
    EXPECT_LT(gradient_distance(fused, exact), 2 * gradient_distance(plain, exact));
  }
}

// Of the trained parameters, in the third step.
std::vector<at::Tensor> adapter_gradients(const config::TrainConfig& train) {
  config::ModelConfig config = gpt2(false);
  config.lora = config::LoraConfig{.r = 2, .target_modules = {"up"}};
  Training training(config, train);
  training.run(2, 1);  // one of the two matrices is 0 at first
  training.step->add({at::arange(4 * (kContext + 1), at::kInt).remainder(kVocab).view({4, -1})});
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : training.parameters)
    gradients.push_back(parameter.grad().clone());
  return gradients;
}

TEST_F(FusedTrainingTest, ComputesAdapterOfLayerBeforeGeluAsPrecisely) {
  config::TrainConfig f32 = bf16();
  f32.precision = config::Precision::kFp32;
  const auto exact = adapter_gradients(f32), plain = adapter_gradients(bf16());
  select(kCountingTable);
  const auto fused = adapter_gradients(bf16());
  EXPECT_EQ(fused.size(), 2u * 2);
  EXPECT_EQ(gelu_calls, 3 * 2);
  EXPECT_GT(gradient_distance(fused, plain), 0);
  EXPECT_LT(gradient_distance(fused, exact), 2 * gradient_distance(plain, exact));
}

TEST_F(FusedTrainingTest, RecomputesCheckpointedActivations) {
  config::ModelConfig config = gpt2(true);
  select(kCountingTable);
  Training plain(config, bf16());
  plain.run(5, 1);
  std::get<config::Gpt2Config>(config.arch).activation_checkpointing = true;
  Training checkpointed(config, bf16());
  checkpointed.run(5, 1);
  EXPECT_EQ(checkpointed.losses, plain.losses);
}

TEST_F(FusedTrainingTest, KeepsCopiesOfWeightsUpToDate) {
  select(kCountingTable);
  Training fused(gpt2(true), bf16());
  fused.run(3, 1);
  int copies = 0;
  for (const auto& [name, parameter] : fused.parameters) {
    const auto* const copy = fused.optimizer->weight_copies().maybe_target(parameter);
    if (copy == nullptr) continue;
    ++copies;
    const at::Tensor wanted = parameter.detach().to(at::kBFloat16);
    EXPECT_EQ(std::memcmp(copy, wanted.const_data_ptr(), wanted.nbytes()), 0) << name;
  }
  EXPECT_EQ(copies, 2 * 4 + 1);  // qkv, proj, up and down of each block, and the head
}

TEST_F(FusedTrainingTest, ReadsWeightsThatWereLoaded) {
  select(kCountingTable);
  Training first(gpt2(false), bf16()), second(gpt2(false), bf16());
  first.run(4, 1);
  second.run(2, 1);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < first.parameters.size(); ++i)
      second.parameters[i].second.copy_(first.parameters[i].second);
  }
  first.run(1, 1);
  second.run(1, 1);
  EXPECT_EQ(second.losses.back(), first.losses.back());
}

void expect_current_copies(Training& training) {
  for (const auto& [name, parameter] : training.parameters) {
    const auto* const copy = training.optimizer->weight_copies().maybe_target(parameter);
    if (copy == nullptr) continue;
    const at::Tensor wanted = parameter.detach().to(at::kBFloat16);
    EXPECT_EQ(std::memcmp(copy, wanted.const_data_ptr(), wanted.nbytes()), 0) << name;
  }
}

// A replay of a captured step changes weights on the device without their version in LibTorch.
TEST_F(FusedTrainingTest, ReadsWeightsThatAReplayOfTheUpdateChanged) {
  select(kCountingTable);
  for (const int64_t micro_batches : {1, 2}) {
    Training replayed(gpt2(false), bf16(micro_batches)), loaded(gpt2(false), bf16(micro_batches));
    loaded.run(3, micro_batches);
    replayed.run(3, micro_batches);
    std::vector<at::Tensor> gradients;
    std::vector<model::AdamwTensor> arguments = adamw_tensors;
    for (model::AdamwTensor& each : arguments) {
      gradients.push_back(at::full({each.size}, 0.5));
      each.gradient = gradients.back().const_data_ptr<float>();
    }
    model::AdamwOptions options = adamw_options;
    options.maybe_grad_scale = options.maybe_found_inf = nullptr;
    cuda::host_kernels().adamw(arguments.data(), static_cast<int64_t>(arguments.size()), options);
    expect_current_copies(replayed);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < loaded.parameters.size(); ++i)
        loaded.parameters[i].second.copy_(replayed.parameters[i].second);
    }
    replayed.run(1, micro_batches);
    loaded.run(1, micro_batches);
    EXPECT_EQ(replayed.losses.back(), loaded.losses.back());
  }
}

TEST_F(FusedTrainingTest, ReadsWeightsThatAnotherOptimizerChangesInAReplay) {
  select(kCountingTable);
  for (const config::OptimizerConfig& config :
       {config::OptimizerConfig{.method = config::SgdConfig{}},
        config::OptimizerConfig{.method = config::AdamConfig{}}}) {
    Training replayed(gpt2(true), bf16(), config), loaded(gpt2(true), bf16(), config);
    replayed.run(3, 1);
    loaded.run(3, 1);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < loaded.parameters.size(); ++i) {
      const at::Tensor& parameter = replayed.parameters[i].second;
      float* const values = parameter.mutable_data_ptr<float>();
      for (int64_t j = 0; j < parameter.numel(); ++j) values[j] *= 1.5f;
      loaded.parameters[i].second.copy_(parameter);
    }
    const at::AutoGradMode grad(true);
    replayed.run(1, 1);
    loaded.run(1, 1);
    EXPECT_EQ(replayed.losses.back(), loaded.losses.back());
  }
  EXPECT_EQ(adamw_calls, 0);
}

TEST_F(FusedTrainingTest, WritesCopiesInUpdatesByLibTorchsKernel) {
  select(kCountingTable);
  Training fused(gpt2(true), bf16());
  fused.run(2, 1);
  reset_calls();
  fused.step->add({at::full({4, kContext + 1}, 1, at::kInt)});
  for (const auto& [name, parameter] : fused.parameters)
    if (parameter.dim() == 2) parameter.mutable_grad() = parameter.grad().t().contiguous().t();
  (void)fused.step->finish_if_finite(/*and_loss=*/true);
  EXPECT_EQ(adamw_calls, 0);
  expect_current_copies(fused);
}

TEST_F(FusedTrainingTest, ChangesNothingOnNonfiniteLoss) {
  select(kCountingTable);
  Training fused(gpt2(false), bf16());
  fused.run(2, 1);
  std::vector<at::Tensor> before;
  for (const auto& [name, parameter] : fused.parameters)
    before.push_back(parameter.detach().clone());
  fused.step->add({at::full({4, kContext + 1}, 1, at::kInt)});
  for (const auto& [name, parameter] : fused.parameters)
    parameter.mutable_grad().fill_(std::numeric_limits<double>::infinity());
  (void)fused.step->finish_if_finite(/*and_loss=*/true);
  EXPECT_EQ(fused.optimizer->skipped().item<float>(), 1);
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(fused.parameters[i].second, before[i])) << fused.parameters[i].first;
}

TEST_F(FusedTrainingTest, UsesLibTorchsKernelForOtherLayoutOfGradient) {
  select(kCountingTable);
  const at::Tensor parameter = at::full({3, 4}, 1.0).requires_grad_();
  const auto optimizer =
      *Optimizer::create({.method = config::AdamWConfig{}}, {}, {{"weight", parameter}});
  optimizer->take_gradients();
  parameter.mutable_grad() = at::full({4, 3}, 1.0).t();
  (void)optimizer->step(0.1);
  EXPECT_EQ(adamw_calls, 0);
  EXPECT_LT(parameter[0][0].item<float>(), 1);
}

TEST_F(FusedTrainingTest, AcceptsAnyStrideOfDimensionsOfOneElement) {
  select(kCountingTable);
  for (const auto& [sizes, strides, strides_of_gradient] :
       std::vector<std::array<std::vector<int64_t>, 3>>{{{{3, 1}, {1, 1}, {1, 7}}},
                                                        {{{1, 4, 3}, {12, 1, 4}, {99, 1, 4}}}}) {
    reset_calls();
    const at::Tensor parameter =
        at::full({12}, 1.0).as_strided(sizes, strides).detach().requires_grad_();
    const auto optimizer =
        *Optimizer::create({.method = config::AdamWConfig{}}, {}, {{"weight", parameter}});
    optimizer->take_gradients();
    parameter.mutable_grad() = at::full({12}, 1.0).as_strided(sizes, strides_of_gradient);
    (void)optimizer->step(0.1);
    EXPECT_EQ(adamw_calls, 1);
    EXPECT_LT(parameter.max().item<float>(), 1);
  }
}

}  // namespace
}  // namespace stoker::train
