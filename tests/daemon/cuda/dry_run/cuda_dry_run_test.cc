// Trains with LibTorch's CUDA part and the CUDA module on a device without kernels (dry_run.h): that the steps
// of all kinds of models can be captured, what a replayed step does in addition, and what
// remains of graphs.
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "shared/base/log.h"
#include "shared/base/status.h"
#include "tests/daemon/cuda/dry_run/dry_run.h"
#include "tests/daemon/train/image_config.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using cuda::dry_run_counts;
using cuda::dry_run_errors;
using cuda::DryRunCounts;

class CudaDryRunTest : public TrainerTest {
 protected:
  static void SetUpTestSuite() {
    prepare_environment({.deterministic = true});
    device_ = open_device({.type = config::DeviceConfig::Type::kCuda, .index = {}});
  }
  void SetUp() override { ASSERT_TRUE(device_.ok()) << device_.status().to_string(); }
  void TearDown() override { EXPECT_THAT(dry_run_errors(), testing::IsEmpty()); }

  // What training did, from the first step on.
  DryRunCounts counts_of(config::Config config, uint64_t steps) {
    config.train.max_steps = steps;
    EXPECT_TRUE(configure_numerics(config.run, config.train).ok());
    Session run(config, fresh(), kNoPoison, {.device = *device_});
    DryRunCounts before;
    run.on_batch = [&, is_first = true](uint64_t) mutable {
      if (std::exchange(is_first, false)) before = dry_run_counts();
    };
    const auto outcome = run.train();
    EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
    const DryRunCounts after = dry_run_counts();
    return {.kernels = after.kernels - before.kernels,
            .captured_kernels = after.captured_kernels - before.captured_kernels,
            .graph_launches = after.graph_launches - before.graph_launches,
            .waits = after.waits - before.waits,
            .allocations = after.allocations - before.allocations};
  }

  // 40 steps more replay a graph for each micro-batch: nothing is captured again, no memory of the device is
  // allocated, and the host waits for values only, by their events. In addition to the graph, a step sets what
  // changes: the learning rate and the state of the generator, and each third step its values for a record.
  void expect_replayed(const config::Config& config) {
    (void)counts_of(config, 10);  // memory of LibTorch's cache, plans of cuDNN
    const DryRunCounts few = counts_of(config, 40), many = counts_of(config, 80);
    const auto micro_batches = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
    EXPECT_GT(few.captured_kernels, 0U);
    EXPECT_EQ(many.captured_kernels, few.captured_kernels);
    EXPECT_EQ(many.graph_launches, few.graph_launches + 40 * micro_batches);
    EXPECT_EQ(many.waits, few.waits);
    EXPECT_EQ(many.allocations, few.allocations);
    EXPECT_LE(many.kernels - few.kernels, 40 * (2 + 2 * micro_batches) + 14 * 8);
  }

  static std::unique_ptr<cuda::DeviceStreams> open_streams() {
    return (*load_cuda_module())->open_streams(device_->index());
  }
  static uint64_t bytes_without_cache(cuda::DeviceStreams& streams) {
    streams.release_cached_memory();
    return dry_run_counts().device_bytes;
  }
  static constexpr int64_t kLargeSize = 1 << 24;  // of F32
  static constexpr uint64_t kLargeBytes = uint64_t{4} * kLargeSize;

  static inline Result<c10::Device> device_ = Status(StatusCode::kNotFound, "not opened");
};

struct Kind {
  std::string name;
  std::function<void(config::Config&)> change;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class CudaDryRunStepTest : public CudaDryRunTest, public testing::WithParamInterface<Kind> {};

// Of the text in the folder of the test.
void set_text_model(config::Config& config, config::ModelVariant model) {
  config.data.at("train").source =
      config::TextDataset{.path = "text", .sequence = {.block_size = 16}};
  config.task.task = config::LanguageModelingTask{};
  config.train.precision = config::Precision::kBf16;
  config.optimizer.method = config::AdamWConfig{};
  config.model.arch = std::move(model);
}
void set_gpt2(config::Config& config) {
  set_text_model(config, config::Gpt2Config{.num_layers = 2,
                                            .num_heads = 2,
                                            .embed_dim = 32,
                                            .context_length = 16,
                                            .vocab_size = 256});
}
void set_llama(config::Config& config) {
  set_text_model(config, config::LlamaConfig{.num_layers = 2,
                                             .num_heads = 2,
                                             .embed_dim = 32,
                                             .context_length = 16,
                                             .vocab_size = 256});
}

std::vector<Kind> kinds() {
  std::vector<Kind> all{
      {"Mlp", [](config::Config&) {}},
      {"Gpt2", set_gpt2},
      {"Llama", set_llama},
      {"Gpt2WithFusedKernels",
       [](config::Config& config) {
         set_gpt2(config);
         config.train.fused_kernels = config::kAllFusedKernels;
       }},
      {"LlamaWithFusedKernels",
       [](config::Config& config) {
         set_llama(config);
         config.train.fused_kernels = config::kAllFusedKernels;
       }},
      {"Checkpointing",
       [](config::Config& config) {
         set_gpt2(config);
         auto& model = std::get<config::Gpt2Config>(config.model.arch);
         model.activation_checkpointing = true;
         model.dropout = 0;
       }},
      {"CheckpointingWithDropout",
       [](config::Config& config) {
         set_gpt2(config);
         std::get<config::Gpt2Config>(config.model.arch).activation_checkpointing = true;
       }},
      {"ResNetInF32", [](config::Config& config) { config = with_images(config); }},
      {"ResNetInBf16",
       [](config::Config& config) {
         config = with_images(config);
         config.train.precision = config::Precision::kBf16;
         config.train.channels_last = true;
       }},
      {"Vit",
       [](config::Config& config) {
         config = with_images(config);
         config.train.precision = config::Precision::kBf16;
         config.model.arch =
             config::VitConfig{.patch_size = 4, .num_layers = 2, .num_heads = 2, .hidden_dim = 32};
       }},
      {"Blstm",
       [](config::Config& config) {
         synthetic_of(config).input_shape = {12, 8};
         config.model.arch = config::BlstmConfig{.hidden_size = 8};
       }},
      {"BlstmWithDropoutInBf16",
       [](config::Config& config) {
         synthetic_of(config).input_shape = {12, 8};
         config.model.arch = config::BlstmConfig{.num_layers = 2, .hidden_size = 8, .dropout = 0.3};
         config.train.precision = config::Precision::kBf16;
         config.run.rng = config::Rng::kPerTicket;
       }},
      {"LstmLmWithDropout",
       [](config::Config& config) {
         set_text_model(
             config, config::LstmLmConfig{
                         .num_layers = 2, .hidden_size = 8, .context_length = 16, .dropout = 0.2});
       }},
      {"Lora",
       [](config::Config& config) {
         set_gpt2(config);
         config.model.lora = config::LoraConfig{.lora_dropout = 0.1};
       }},
      {"VggWithClassWeights",
       [](config::Config& config) {
         config = with_images(config);
         synthetic_of(config).input_shape = {3, 32, 32};
         config.model.arch = config::VggConfig{.depth = 11, .batch_norm = true, .hidden_dim = 16};
         config.task.task = config::ClassificationTask{.label_smoothing = 0.1,
                                                       .class_weights = {.values = {1, 2, 1, 3}}};
       }},
      {"MixedPrecisionWithLossScale",
       [](config::Config& config) {
         config = with_images(config);
         config.train.precision = config::Precision::kFp16;
       }},
      {"AccumulationAndEma",
       [](config::Config& config) {
         config.train.gradient_accumulation_steps = 3;
         config.train.ema_decay = 0.9;
       }},
      {"SkippedSteps",
       [](config::Config& config) { config.train.on_nonfinite = config::OnNonfinite::kSkipStep; }},
  };
  const std::vector<std::pair<std::string, config::OptimizerVariant>> optimizers{
      {"Sgd", config::SgdConfig{.momentum = 0.9}},
      {"Adam", config::AdamConfig{}},
      {"Lion", config::LionConfig{}},
      {"Muon", config::MuonConfig{}},
      {"Rmsprop", config::RmspropConfig{}},
      {"Adagrad", config::AdagradConfig{}},
      {"Nadam", config::NadamConfig{}},
      {"Radam", config::RadamConfig{.decoupled_weight_decay = true}},
      {"Adamax", config::AdamaxConfig{}},
      {"Adadelta", config::AdadeltaConfig{}},
      {"Adafactor", config::AdafactorConfig{}},
      {"Lamb", config::LambConfig{}},
      {"Lars", config::LarsConfig{.momentum = 0.9, .weight_decay = 0.01, .trust_clip = true}},
      {"ScheduleFreeAdamW", config::ScheduleFreeAdamWConfig{.weight_decay = 0.01}}};
  for (const auto& [name, method] : optimizers)
    all.push_back({name, [method](config::Config& config) { config.optimizer.method = method; }});
  return all;
}

TEST_P(CudaDryRunStepTest, IsReplayed) {
  config::Config config = small_config(0);
  GetParam().change(config);
  if (auto* const text = std::get_if<config::TextDataset>(&config.data.at("train").source)) {
    text->path = root_ + "/text";
    std::ofstream(text->path) << std::string(4000, 'a');
  }
  select_fused_kernels(config.train, *device_);
  expect_replayed(config);
  select_fused_kernels({}, *device_);
}
INSTANTIATE_TEST_SUITE_P(Kinds, CudaDryRunStepTest, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

// The lengths are never copied to the host.
TEST_F(CudaDryRunTest, ReplaysStepsOfPaddedSequences) {
  const std::string path = root_ + "/data.jsonl";
  {
    std::ofstream file(path);
    for (int i = 0; i < 64; ++i) {
      file << "{\"ids\": [" << i;
      for (int length = 1; length < 1 + i % 9; ++length) file << ", " << length;
      file << "], \"label\": " << i % 3 << "}\n";
    }
  }
  config::Config config = small_config(0);
  config.data.at("train").source = config::JsonlDataset{
      .path = path,
      .record = {.fields = {.label = "label", .input_ids = "ids"}, .sequence = {.max_length = 9}}};
  config.task.task = config::ClassificationTask{};
  const config::BertConfig bert{
      .num_layers = 2, .num_heads = 2, .embed_dim = 32, .context_length = 9, .vocab_size = 100};
  const config::BlstmConfig blstm{
      .num_layers = 2, .hidden_size = 8, .vocab_size = 100, .dropout = 0.2};
  for (const auto precision :
       {config::Precision::kFp32, config::Precision::kBf16, config::Precision::kFp16}) {
    config.train.precision = precision;
    for (const auto& model : {config::ModelVariant(bert), config::ModelVariant(blstm)}) {
      config.model.arch = model;
      expect_replayed(config);
    }
  }
}

// What FailedCapture of cuda_streams.cc clears: LibTorch would keep the memory, reject the pool that the capture
// shares with a graph, and leave the generator in the capture.
TEST_F(CudaDryRunTest, CapturesAfterFailedCaptureAndAfterLastGraph) {
  const auto streams = open_streams();
  const auto options = at::TensorOptions().device(*device_);
  const at::Tensor input = at::ones({1000}, options);
  const auto dropout = [&] { (void)at::dropout(input, 0.5, true); };
  const at::Generator generator = at::globalContext().defaultGenerator(*device_);
  const auto expect_failure = [&] {
    const at::Tensor state = generator.get_state();
    EXPECT_THAT(
        [&] {
          (void)streams->capture([&] {
            dropout();
            (void)at::ones({kLargeSize}, options);
            (void)input.sum().item<float>();  // waits, which a capture does not allow
          });
        },
        testing::Throws<c10::Error>());
    EXPECT_TRUE(at::equal(generator.get_state(), state));
    dropout();
    EXPECT_FALSE(at::equal(generator.get_state(), state));
  };
  for (int i = 0; i < 3; ++i) {
    const uint64_t bytes = bytes_without_cache(*streams);
    expect_failure();
    EXPECT_LT(bytes_without_cache(*streams), bytes + kLargeBytes);
    auto first = streams->capture(dropout);
    first->replay();
    expect_failure();  // replays of graphs with random numbers would fail from here on; DeviceEngine drops them
    auto second = streams->capture(dropout);
    EXPECT_EQ(dry_run_counts().graphs, 2U);
    second->replay();
  }
  EXPECT_EQ(dry_run_counts().graphs, 0U);
}

TEST_F(CudaDryRunTest, ReturnsMemoryOfGraphsToTheDevice) {
  const auto streams = open_streams();
  const uint64_t before = bytes_without_cache(*streams);
  auto graph =
      streams->capture([&] { (void)at::ones({kLargeSize}, at::TensorOptions().device(*device_)); });
  EXPECT_GE(bytes_without_cache(*streams), before + kLargeBytes);
  graph.reset();
  EXPECT_EQ(bytes_without_cache(*streams), before);
}

}  // namespace
}  // namespace stoker::train
