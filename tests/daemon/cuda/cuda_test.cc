// Compares training on a CUDA device with the CPU and with itself. Skipped if there is no device.
#include <cmath>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "daemon/group/device_sums.h"
#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "shared/base/log.h"
#include "shared/base/status.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/model/autocast.h"
#include "shared/model/fused_kernels.h"
#include "shared/task/task.h"
#include "tests/daemon/train/image_config.h"
#include "tests/daemon/train/thread_group.h"
#include "tests/daemon/train/trainer_session.h"
#include "tests/support/eventually.h"

namespace stoker::train {
namespace {

class CudaTest : public TrainerTest {
 protected:
  static void SetUpTestSuite() {
    prepare_environment({.deterministic = true});  // before CUDA is loaded
    device_ = open_device({.type = config::DeviceConfig::Type::kCuda, .index = {}});
  }
  void SetUp() override {
    if (!device_.ok()) GTEST_SKIP() << device_.status().message();
  }
  ModelContext on_device() const { return {.device = *device_}; }
  config::Config language_model_config(uint64_t steps) const {
    const std::string text = root_ + "/text";
    std::ofstream file(text);
    for (int i = 0; i < 4000; ++i) file << static_cast<char>('a' + i * i % 23);
    config::Config config = small_config(steps);
    config.run.deterministic = true;
    config.data.at("train").source =
        config::TextDataset{.path = text, .sequence = {.block_size = 16}};
    config.task.task = config::LanguageModelingTask{};
    return config;
  }
  // Trains to the end in a separate directory.
  std::unique_ptr<Session> trained(const config::Config& config, bool on_the_device = true) {
    EXPECT_TRUE(configure_numerics(config.run, config.train).ok());
    auto run = std::make_unique<Session>(config, fresh(), kNoPoison,
                                         on_the_device ? on_device() : ModelContext{});
    const auto outcome = run->train();
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    return run;
  }

  static inline Result<c10::Device> device_ = Status(StatusCode::kNotFound, "not initialized");
};

config::Config repeatable(uint64_t steps) {
  config::Config config = small_config(steps);
  config.run.deterministic = true;
  return config;
}

config::Config image_config(uint64_t steps) { return with_images(repeatable(steps)); }

void expect_near(const Session& run, const Session& other, double part) {
  ASSERT_EQ(run.rows_.size(), other.rows_.size());
  for (size_t i = 0; i < run.rows_.size(); ++i)
    EXPECT_NEAR(run.rows_[i].loss, other.rows_[i].loss, part * std::abs(other.rows_[i].loss))
        << "step " << run.rows_[i].step;
}

// A few steps of the ResNet: norms over four images and AdamW multiply the difference of the last digits
// of two devices, some initial weights by ten each step.
TEST_F(CudaTest, MatchesCpuTrainingInFp32) {
  for (auto config : {repeatable(30), image_config(3)}) {
    if (auto* const mlp = std::get_if<config::MlpConfig>(&config.model.arch)) mlp->dropout = 0;
    expect_near(*trained(config), *trained(config, false), 1e-2);
  }
}

TEST_F(CudaTest, MatchesEagerStepsBitForBitWhenCaptured) {
  for (const auto precision : {config::Precision::kFp32, config::Precision::kTf32,
                               config::Precision::kBf16, config::Precision::kFp16}) {
    auto config = image_config(20);
    config.train.precision = precision;
    config.train.gradient_accumulation_steps = 2;
    config.train.ema_decay = 0.9;
    const auto captured = trained(config);
    config.train.cuda_graphs = config::CudaGraphs::kNever;
    const auto plain = trained(config);
    EXPECT_EQ(captured->model_sha256(), plain->model_sha256()) << static_cast<int>(precision);
    expect_near(*captured, *plain, 0);
  }
}

// Weights and their bf16 copies, which replays change without the host.
TEST_F(CudaTest, MatchesEagerStepsBitForBitWhenCapturedWithFusedKernels) {
  config::Config config = language_model_config(20);
  config.train.precision = config::Precision::kBf16;
  config.train.fused_kernels = config::kAllFusedKernels;
  config.train.device = {.type = config::DeviceConfig::Type::kCuda, .index = {}};
  select_fused_kernels(config.train, *device_);
  const bool has_kernels = model::fused_kernels(*device_) != model::KernelTable();
  const std::vector<config::ModelVariant> models{config::Gpt2Config{.num_layers = 2,
                                                                    .num_heads = 2,
                                                                    .embed_dim = 32,
                                                                    .context_length = 16,
                                                                    .vocab_size = 256,
                                                                    .dropout = 0},
                                                 config::LlamaConfig{.num_layers = 2,
                                                                     .num_heads = 2,
                                                                     .embed_dim = 32,
                                                                     .context_length = 16,
                                                                     .vocab_size = 256}};
  for (size_t i = 0; has_kernels && i < models.size(); ++i) {
    for (const int64_t micro_batches : {1, 2}) {
      for (const bool is_adamw : {true, false}) {
        config.model.arch = models[i];
        config.train.gradient_accumulation_steps = micro_batches;
        if (is_adamw)
          config.optimizer.method = config::AdamWConfig{.lr = 0.01};
        else
          config.optimizer.method = config::SgdConfig{.lr = 0.1};
        config.train.cuda_graphs = config::CudaGraphs::kAuto;
        const auto captured = trained(config);
        config.train.cuda_graphs = config::CudaGraphs::kNever;
        EXPECT_EQ(captured->model_sha256(), trained(config)->model_sha256())
            << "model " << i << ", " << micro_batches << " micro-batches, adamw " << is_adamw;
      }
    }
  }
  config.train.fused_kernels = {};
  select_fused_kernels(config.train, *device_);
  if (!has_kernels) GTEST_SKIP() << "the CUDA module has no fused kernels";
}

// The backward pass sets the generator back to the masks of the forward pass, also in a capture.
TEST_F(CudaTest, MatchesEagerStepsBitForBitWhenCapturedWithActivationCheckpointing) {
  config::Config config = language_model_config(20);
  config.model.arch = config::GptConfig{.num_layers = 2,
                                        .num_heads = 2,
                                        .embed_dim = 32,
                                        .context_length = 16,
                                        .dropout = 0.3,
                                        .activation_checkpointing = true};
  config.train.precision = config::Precision::kBf16;
  testing::internal::CaptureStderr();
  const auto captured = trained(config);
  flush_log();
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_EQ(logged.find("cuda graph capture disabled"), std::string::npos) << logged;
  config.train.cuda_graphs = config::CudaGraphs::kNever;
  EXPECT_EQ(captured->model_sha256(), trained(config)->model_sha256());
}

TEST_F(CudaTest, SamplesNewDropoutMaskInEachReplay) {
  auto config = repeatable(40);
  mlp_of(config).dropout = 0.5;
  const auto captured = trained(config);
  config.train.cuda_graphs = config::CudaGraphs::kNever;
  EXPECT_EQ(captured->model_sha256(), trained(config)->model_sha256());
}

// One rank, whose sums are copies: what is captured between them, and with allreduce that each copies
// complete gradients behind its event. Two ranks need two GPUs.
TEST_F(CudaTest, MatchesEagerStepsBitForBitWhenCapturedInGroup) {
  auto config = repeatable(20);
  config.train.gradient_accumulation_steps = 2;
  config.train.ema_decay = 0.9;
  config.distributed.bucket_mib = 1e-4;
  config.run.rng = config::Rng::kPerTicket;
  for (const auto reduction : {config::Reduction::kOrdered, config::Reduction::kAllReduce}) {
    config.distributed.reduction = reduction;
    std::vector<std::string> models;
    for (const auto graphs : {config::CudaGraphs::kAuto, config::CudaGraphs::kNever}) {
      config.train.cuda_graphs = graphs;
      EXPECT_TRUE(configure_numerics(config.run, config.train).ok());
      ThreadGroup group(1);
      ModelContext context = on_device();
      context.maybe_group = &group.rank(0);
      Session run(config, fresh(), kNoPoison, std::move(context));
      flush_log();  // what was logged before
      testing::internal::CaptureStderr();
      const auto outcome = run.train();
      flush_log();
      const std::string logged = testing::internal::GetCapturedStderr();
      ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
      models.push_back(run.model_sha256());
      const bool is_captured = logged.find("cuda graph captured") != std::string::npos;
      EXPECT_EQ(is_captured, graphs == config::CudaGraphs::kAuto) << logged;
      EXPECT_EQ(logged.find("cuda graph capture disabled"), std::string::npos) << logged;
    }
    EXPECT_EQ(models[0], models[1]) << static_cast<int>(reduction);
  }
}

TEST_F(CudaTest, ResumesBitForBit) {
  const auto config = repeatable(40);
  const auto whole = trained(config);
  const std::string root = fresh();
  {
    Session part(config, root, kNoPoison, on_device());
    part.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 15) part.ask(control::Stop{});
    };
    ASSERT_TRUE(part.train().ok());
  }
  Session rest(config, root, kNoPoison, on_device());
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.model_sha256(), whole->model_sha256());
}

TEST_F(CudaTest, LearnsWithReducedPrecisionAndChannelsLast) {
  for (const auto precision :
       {config::Precision::kTf32, config::Precision::kBf16, config::Precision::kFp16}) {
    auto config = image_config(60);
    const auto full = trained(config);
    config.train.precision = precision;
    config.train.channels_last = true;
    const auto run = trained(config);
    EXPECT_NEAR(run->rows_.back().loss, full->rows_.back().loss, 0.3)
        << static_cast<int>(precision);
  }
}

// `pause --release`: the memory of a trainer that no longer exists.
TEST_F(CudaTest, ReleasesMemoryInPauseAndContinuesBitForBit) {
  auto config = repeatable(40);
  mlp_of(config).hidden_sizes = {2048, 2048};  // with gradients and AdamW's state 64 MiB
  const config::DeviceConfig device{.type = config::DeviceConfig::Type::kCuda,
                                    .index = device_->index()};
  const std::string expected = trained(config)->model_sha256();
  const std::string root = fresh();
  {
    ModelContext context = on_device();
    context.has_device_memory = true;
    Session paused(config, root, kNoPoison, std::move(context));
    paused.on_row = [&](const metrics::TrainMetrics& row) {
      if (row.step == 15) paused.ask(control::Pause{.release = true});
    };
    const auto outcome = paused.train();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(*outcome, TrainerOutcome::kReleased);
  }
  const auto released = release_device_memory(device, *device_);
  ASSERT_TRUE(released.ok()) << released.status().to_string();
  EXPECT_LT(released->reserved_bytes, uint64_t{32} << 20);
  Session rest(config, root, kNoPoison, on_device());
  ASSERT_TRUE(rest.train().ok());
  EXPECT_EQ(rest.model_sha256(), expected);
}

// The loss of a model on tokens of different lengths, and all gradients in one tensor.
struct LossAndGradients {
  double loss = 0;
  at::Tensor gradients;
};
LossAndGradients compute_loss_and_gradients(
    c10::Device device, const config::ModelConfig& config, const config::TaskConfig& task_config,
    task::Batch batch, std::optional<at::ScalarType> autocast_dtype = std::nullopt) {
  const bool is_classification = task_config.name() == config::TaskName::kClassification;
  const std::vector<TensorSpec> sample{
      {"tokens", DType::kI32, {9}},
      {"length", DType::kI64, {}},
      {is_classification ? "label" : "labels", DType::kI64, batch[2].sizes().slice(1).vec()}};
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(4);
  const auto model = model::make_model(config, sample, 5);
  const auto task = task::make_task(task_config, nullptr, sample, 5);
  EXPECT_TRUE(model.ok() && task.ok()) << task.status().to_string();
  (*model)->to(device);
  for (at::Tensor& tensor : batch) tensor = tensor.to(device);
  at::Tensor loss;
  {
    const model::Autocast autocast(autocast_dtype, device.type());
    loss = (*task)->loss(**model, batch);
  }
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : (*model)->parameters())
    gradients.push_back(parameter.grad().flatten().cpu());
  return {loss.item<double>(), at::cat(gradients)};
}

TEST_F(CudaTest, MatchesCpuLossesAndGradientsWithPaddedSequences) {
  EXPECT_TRUE(configure_numerics({}, {}).ok());
  const at::Tensor length = at::tensor({9, 4, 1, 7}, at::kLong);
  const at::Tensor padding = at::arange(9).unsqueeze(0).ge(length.unsqueeze(1));
  const at::Tensor tokens = at::randint(200, {4, 9}, at::kInt).masked_fill(padding, 0);
  const at::Tensor token_labels = at::randint(5, {4, 9}, at::kLong).masked_fill(padding, -100);
  const at::Tensor unaligned_labels =
      at::tensor({1, 2, 3, 1, -100, -100, 4, -100, -100, 2, 2, 1}, at::kLong).view({4, 3});
  for (const auto& [task_config, labels] :
       {std::pair(config::TaskConfig{config::SequenceLabelingTask{}}, token_labels),
        std::pair(config::TaskConfig{config::CtcTask{}}, unaligned_labels),
        std::pair(config::TaskConfig{config::ClassificationTask{}},
                  at::tensor({0, 4, 2, 1}, at::kLong))}) {
    const task::Batch batch{tokens, length, labels};
    const bool is_classification = task_config.name() == config::TaskName::kClassification;
    const config::ModelConfig blstm{
        .arch = config::BlstmConfig{
            .num_layers = 2,
            .hidden_size = 12,
            .pooling = is_classification ? config::Pooling::kLast : config::Pooling::kNone}};
    const LossAndGradients expected = compute_loss_and_gradients(c10::Device(c10::kCPU), blstm,
                                                                 task_config, batch),
                           actual = compute_loss_and_gradients(*device_, blstm, task_config, batch);
    EXPECT_NEAR(actual.loss, expected.loss, 1e-4 * expected.loss)
        << static_cast<int>(task_config.name());
    EXPECT_LE(actual.gradients.sub(expected.gradients).abs().max().item<double>(),
              1e-3 * expected.gradients.abs().max().item<double>())
        << static_cast<int>(task_config.name());
  }
}

// In F32, and in bf16 without and with fused kernels. On the CPU, bf16 changes the gradients by 0.005.
TEST_F(CudaTest, MatchesCpuLossAndGradientsOfBert) {
  EXPECT_TRUE(configure_numerics({}, {}).ok());
  const config::ModelConfig bert{.arch = config::BertConfig{.num_layers = 4,
                                                            .num_heads = 2,
                                                            .embed_dim = 32,
                                                            .context_length = 9,
                                                            .vocab_size = 200,
                                                            .dropout = 0,
                                                            .attention_dropout = 0}};
  const config::TaskConfig task{config::ClassificationTask{}};
  const at::Tensor length = at::tensor({9, 4, 1, 7}, at::kLong);
  const at::Tensor padding = at::arange(9).unsqueeze(0).ge(length.unsqueeze(1));
  const task::Batch batch{at::randint(200, {4, 9}, at::kInt).masked_fill(padding, 0), length,
                          at::tensor({0, 4, 2, 1}, at::kLong)};
  const LossAndGradients expected =
      compute_loss_and_gradients(c10::Device(c10::kCPU), bert, task, batch);
  const auto expect_close = [&](const LossAndGradients& actual, double tolerance) {
    EXPECT_NEAR(actual.loss, expected.loss, tolerance * expected.loss);
    EXPECT_LE(actual.gradients.sub(expected.gradients).norm().item<double>(),
              tolerance * expected.gradients.norm().item<double>());
  };
  expect_close(compute_loss_and_gradients(*device_, bert, task, batch), 1e-3);
  config::TrainConfig train{.device = {.type = config::DeviceConfig::Type::kCuda, .index = {}}};
  for (const bool is_fused : {false, true}) {
    train.fused_kernels = is_fused ? config::kAllFusedKernels : config::FusedKernelsConfig();
    select_fused_kernels(train, *device_);
    expect_close(compute_loss_and_gradients(*device_, bert, task, batch, at::kBFloat16), 0.03);
  }
  train.fused_kernels = {};
  select_fused_kernels(train, *device_);
}

// As after an eager step that needed their memory, or when frozen parameters are trained. A result in
// the memory of the graphs can outlive them.
TEST_F(CudaTest, CapturesAgainAfterAllGraphsAreDestroyed) {
  const auto streams = (*load_cuda_module())->open_streams(device_->index());
  const at::Tensor input = at::ones({1000}, at::TensorOptions().device(*device_));
  const at::Tensor output = at::zeros_like(input);
  at::Tensor result;
  for (int factor = 2; factor < 5; ++factor) {
    const auto work = [&] {
      result = input * factor;
      output.copy_(result);
    };
    auto first = streams->capture(work), second = streams->capture(work);
    for (const auto* const graph : {&first, &second}) {
      output.zero_();
      (*graph)->replay();
      EXPECT_EQ(output.sum().item<int>(), 1000 * factor);
    }
    streams->synchronize();
    first.reset();
    second.reset();
    streams->release_cached_memory();
  }
}

TEST_F(CudaTest, RestoresRngAndCaptureAfterAbortedCapture) {
  const auto streams = (*load_cuda_module())->open_streams(device_->index());
  const at::Tensor input = at::ones({1000}, at::TensorOptions().device(*device_));
  const auto sample_dropout = [&] { return at::dropout(input, 0.5, true); };
  (void)sample_dropout();
  const at::Generator generator = at::globalContext().defaultGenerator(*device_);
  const at::Tensor state = generator.get_state();
  const auto invalid_capture = [&] {
    (void)sample_dropout();
    (void)input.sum().item<float>();  // synchronizes, which a capture does not allow
  };
  EXPECT_THROW((void)streams->capture(invalid_capture), c10::Error);
  EXPECT_TRUE(at::equal(generator.get_state(), state))
      << "the aborted capture must not change the generator state";
  const at::Tensor sample = sample_dropout();
  EXPECT_FALSE(at::equal(generator.get_state(), state));
  const at::Tensor output = at::zeros_like(input);
  const auto graph = streams->capture([&] { output.copy_(input * 2 + sample_dropout().mul(0)); });
  EXPECT_EQ(output.sum().item<float>(), 0) << "a capture does not run the kernels";
  graph->replay();
  EXPECT_EQ(output.sum().item<float>(), 2000);
}

// As after a rollback. LibTorch caches memory, and cuBLAS has a workspace, per stream: on another one, each
// opening would reserve both again.
TEST_F(CudaTest, UsesSameStreamsWhenOpenedAgain) {
  const c10::impl::VirtualGuardImpl current(c10::kCUDA);
  const c10::Stream outside = current.getStream(*device_);
  const auto options = at::TensorOptions().device(*device_);
  const at::Tensor weight = at::ones({512, 512}, options).requires_grad_();
  std::vector<c10::Stream> forward, backward, sums;
  std::vector<uint64_t> reserved;
  weight.register_hook([&](const at::Tensor&) { backward.push_back(current.getStream(*device_)); });
  for (int opening = 0; opening < 3; ++opening) {
    {
      const auto streams = (*load_cuda_module())->open_streams(device_->index());
      streams->submit([&] {
        forward.push_back(current.getStream(*device_));
        const at::Tensor input = at::ones({1 << 14, 512}, options);  // 32 MiB
        input.matmul(weight).sum().backward();
      });
      streams->submit_sums([&] {
        sums.push_back(current.getStream(*device_));
        (void)at::ones({1 << 23}, options);
      });
      streams->synchronize();
      weight.mutable_grad().reset();
      reserved.push_back(streams->memory().reserved_bytes);
    }
    EXPECT_EQ(current.getStream(*device_), outside);
  }
  EXPECT_NE(forward[0], outside);
  EXPECT_NE(forward[0], sums[0]);
  EXPECT_THAT(forward, testing::Each(forward[0]));
  EXPECT_THAT(backward, testing::ElementsAre(forward[0], forward[0], forward[0]));
  EXPECT_THAT(sums, testing::Each(sums[0]));
  EXPECT_THAT(reserved, testing::Each(reserved[0]));
}

// All that one GPU can run of NCCL: twice, as a process that trains several times.
TEST_F(CudaTest, SumsOfGroupOfOneRankChangeNothing) {
  const auto module = load_cuda_module();
  const auto open_collectives = (*module)->find_collectives();
  if (open_collectives == nullptr) GTEST_SKIP() << "the module was built without NCCL";
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const char* const prefix : {"1/", "2/"}) {
    group::DeviceSums sums(
        open_collectives(device_->index(), {.store = store.get(), .prefix = prefix}), 1);
    const auto options = at::TensorOptions().dtype(at::kFloat).device(*device_);
    const at::Tensor values = at::arange(1001, options);
    const at::Tensor tensor = values.clone(), bucket = values.clone(), other = values.clone();
    sums.broadcast(tensor, 0);
    sums.all_reduce_ordered({tensor, at::empty({0}, options)});
    sums.all_gather(tensor, {1001});
    sums.start_all_reduce(bucket);
    sums.start_reduce_scatter(other, {1001});
    sums.finish_sums();
    for (const at::Tensor& sum : {tensor, bucket, other}) EXPECT_TRUE(at::equal(sum, values));
    EXPECT_TRUE(test::eventually([&] { return sums.is_complete(); }));
    sums.abort();
  }
}

TEST_F(CudaTest, ReportsOutOfMemoryWhenModelDoesNotFit) {
  auto config = small_config(3);
  mlp_of(config).hidden_sizes = {4096, 4096};
  const auto data =
      data::pipeline::open_dataset("train", config.data.at("train"), root_ + "/index", {});
  const auto options = at::TensorOptions().dtype(at::kByte).device(*device_);
  std::vector<at::Tensor> allocations;
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{1} << 25, int64_t{1} << 21}) {
    try {
      while (true) allocations.push_back(at::empty({bytes}, options));
    } catch (const c10::OutOfMemoryError&) {
    }
  }
  const auto state = TrainingState::create(config, (*data)->info(), *device_);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(static_cast<int>(exit_code_for(state.status())), 71);
  // What the following tests need outside of LibTorch's allocator.
  allocations.clear();
  const config::DeviceConfig device{.type = config::DeviceConfig::Type::kCuda,
                                    .index = device_->index()};
  EXPECT_TRUE(release_device_memory(device, *device_).ok());
}

}  // namespace
}  // namespace stoker::train
