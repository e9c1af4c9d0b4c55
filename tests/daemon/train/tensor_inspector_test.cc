// The statistics of inspections (parameters, gradients, module outputs), and the errors for unknown
// names.
#include "daemon/train/tensor_inspector.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/std.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/csrc/autograd/variable.h>

#include "daemon/train/tensor_statistics.h"

namespace stoker::train {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;

metrics::TensorSummary summary_of(const at::Tensor& tensor, bool histogram = true) {
  return read_statistics(enqueue_statistics(tensor, histogram));
}

TEST(TensorStatisticsTest, CountsAndExcludesNonfiniteValues) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const auto seen = summary_of(torch::tensor({3.0f, 0.0f, nan, -1.0f, inf, -inf, 0.0f, 2.0f}));
  EXPECT_EQ(seen.count, 8u);
  EXPECT_EQ(seen.nan, 1u);
  EXPECT_EQ(seen.inf, 2u);
  EXPECT_EQ(seen.zeros, 2u);
  EXPECT_DOUBLE_EQ(seen.mean, 0.8);
  EXPECT_DOUBLE_EQ(seen.min, -1);
  EXPECT_DOUBLE_EQ(seen.max, 3);
  EXPECT_DOUBLE_EQ(seen.norm, std::sqrt(14.0));
  EXPECT_DOUBLE_EQ(seen.std, std::sqrt(14.0 / 5 - 0.64));
}

TEST(TensorStatisticsTest, AcceptsEmptyAndNonfiniteTensors) {
  const auto none = summary_of(torch::tensor({std::nanf(""), std::nanf("")}));
  EXPECT_EQ(none.nan, 2u);
  EXPECT_EQ(none.max, 0);
  EXPECT_TRUE(none.buckets.empty());
  EXPECT_EQ(summary_of(torch::zeros({0, 3})).count, 0u);
}

TEST(TensorStatisticsTest, AcceptsInputsThatWorkerOverwritesMeanwhile) {
  std::vector<double> slot(1 << 15, 1.5);
  const at::Tensor input = torch::from_blob(slot.data(), {1 << 15}, at::kDouble);
  std::jthread writer([&](const std::stop_token& stop) {
    for (size_t write = 0; !stop.stop_requested(); ++write) {
      const size_t i = write % slot.size();
      const bool is_nan = i % 2 == 0 && write / slot.size() % 2 == 0;
      std::atomic_ref(slot[i]).store(is_nan ? std::nan("") : 1.5, std::memory_order_relaxed);
    }
  });
  for (int round = 0; round < 50; ++round) {
    const auto summary = summary_of(input);
    EXPECT_EQ(summary.count, slot.size());
    EXPECT_DOUBLE_EQ(summary.mean, 1.5);
  }
}

TEST(TensorStatisticsTest, AssignsFiniteValuesToCorrectBuckets) {
  const std::vector<double> numbers = {-1e9, -3, -1e-20, 0, 0, 1e-20, 0.3, 1.1, 1e9};
  const auto seen = summary_of(torch::tensor(numbers, at::kDouble));
  double low = seen.below, count = 0;
  int num_of_third = 0;  // buckets that hold the number 0.3
  for (const auto& bucket : seen.buckets) {
    EXPECT_GT(bucket.limit, low);
    if (bucket.limit > 0.3 && low < 0.3) {
      ++num_of_third;
      EXPECT_EQ(bucket.count, 1);
      EXPECT_LT(bucket.limit, 0.3 * 1.2);
    }
    low = bucket.limit;
    count += bucket.count;
  }
  EXPECT_EQ(num_of_third, 1);
  EXPECT_EQ(count, 9);
  EXPECT_LE(seen.below, -1e9);
  EXPECT_GE(seen.buckets.back().limit, 1e9);
}

TEST(TensorStatisticsTest, MatchesLibTorchOnLargeTensor) {
  torch::manual_seed(1);
  const at::Tensor large = torch::randn({(1 << 20) + 77}).mul(3).add(1);
  const auto seen = summary_of(large);
  const at::Tensor exact = large.to(at::kDouble);
  EXPECT_EQ(seen.count, static_cast<uint64_t>(large.numel()));
  EXPECT_NEAR(seen.mean, exact.mean().item<double>(), 1e-12);
  EXPECT_NEAR(seen.std, exact.std(/*unbiased=*/false).item<double>(), 1e-12);
  EXPECT_EQ(seen.max, exact.max().item<double>());
  double count = 0;
  for (const auto& bucket : seen.buckets) count += bucket.count;
  EXPECT_EQ(count, static_cast<double>(large.numel()));
}

model::ModelPtr gpt() {
  const config::ModelConfig config{
      .arch = config::GptConfig{
          .num_layers = 2, .num_heads = 2, .embed_dim = 8, .context_length = 4, .vocab_size = 16}};
  return *model::make_model(config, {{.name = "tokens", .dtype = DType::kI64, .shape = {5}}}, 16);
}

TEST(ActivationRecorderTest, RecordsOutputOfEachModuleWithParameters) {
  const auto model = gpt();
  at::set_num_threads(1);
  const at::Tensor input = torch::randint(16, {3, 4}, at::kLong);
  std::map<std::string, at::Tensor> seen;
  at::Tensor logits;
  {
    ActivationRecorder watch(*model);
    watch.start([&](const std::string& module, const at::Tensor& output) {
      seen[module] = output.detach().clone();
    });
    logits = model->forward(input);
  }
  (void)model->forward(input);  // recording has ended
  ASSERT_TRUE(seen.contains("head"));
  EXPECT_TRUE(seen.at("head").equal(logits));
  EXPECT_THAT(seen.at("blocks.1.qkv").sizes().vec(), ElementsAre(3, 4, 24));
  EXPECT_THAT(seen.at("tok").sizes().vec(), ElementsAre(3, 4, 8));
  for (const std::string& name : module_names(*model)) {
    if (name == "pos") continue;  // its table is only sliced, which gives a view
    EXPECT_TRUE(seen.contains(name)) << name;
  }
}

TEST(ActivationRecorderTest, RecordsOutputBeforeInplaceUpdate) {
  const config::ModelConfig config{.arch = config::ResnetConfig{.depth = 8}};
  const auto model = *model::make_model(config,
                                        {{.name = "input", .dtype = DType::kU8, .shape = {3, 8, 8}},
                                         {.name = "label", .dtype = DType::kI64, .shape = {}}},
                                        10);
  std::map<std::string, metrics::TensorSummary> seen;
  ActivationRecorder watch(*model);
  watch.start([&](const std::string& module, const at::Tensor& output) {
    seen[module] = summary_of(output, false);
  });
  (void)model->forward(torch::randn({4, 3, 8, 8}));
  EXPECT_LT(seen.at("bn1").min, 0);  // followed by an in-place ReLU
  EXPECT_NEAR(seen.at("bn1").mean, 0, 1e-5);
  EXPECT_TRUE(seen.contains("layer2.0.downsample.0"));
}

// A model with inspections, and manual steps.
class TensorInspectorTest : public testing::Test {
 protected:
  TensorInspectorTest() { at::set_num_threads(1); }
  json::object open(const control::OpenInspection& inspection) {
    answer_ = Status(StatusCode::kInternal, "not answered");
    inspections_.open(inspection, step_,
                      [this](Result<std::string> answer) { answer_ = std::move(answer); });
    return answer_.ok() ? json::parse(*answer_).as_object() : json::object();
  }
  void step() {
    inspections_.begin_step(++step_);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      inspections_.begin_forward();
      const at::Tensor logits = model_->forward(torch::randint(16, {3, 4}, at::kLong));
      inspections_.end_forward();
      logits.square().sum().backward();
    }
    inspections_.on_gradients();
    for (const auto& parameter : model_->parameters()) parameter.grad().zero_();
    inspections_.end_step();
  }
  json::array rows(uint64_t inspection, uint64_t after = 0) {
    return json::parse(*board_.read(inspection, after)).at("records").as_array();
  }

  ManualClock clock_;
  InspectionBoard board_{clock_};
  model::ModelPtr model_ = gpt();
  TensorInspector inspections_{*model_, board_};
  uint64_t step_ = 0;
  Result<std::string> answer_ = std::string();
};

TEST_F(TensorInspectorTest, RecordsParametersGradientsAndActivations) {
  const auto opened = open({.glob = "blocks.0.qkv*", .histograms = true});
  ASSERT_TRUE(answer_.ok()) << answer_.status().to_string();
  EXPECT_EQ(opened.at("parameters").to_number<int>(), 2);
  EXPECT_EQ(opened.at("gradients").to_number<int>(), 2);
  EXPECT_EQ(opened.at("activations").to_number<int>(), 1);
  step();
  const auto all = rows(opened.at("inspection").to_number<uint64_t>());
  ASSERT_EQ(all.size(), 1u);
  std::vector<std::string> seen;
  for (const auto& tensor : all[0].at("tensors").as_array()) {
    seen.push_back(std::string(tensor.at("kind").as_string()) + " " +
                   std::string(tensor.at("name").as_string()));
    if (seen.back() == "gradient blocks.0.qkv.weight") {
      EXPECT_GT(tensor.at("norm").to_number<double>(), 0);  // recorded before it was zeroed
    }
    EXPECT_TRUE(tensor.as_object().contains("histogram"));
  }
  EXPECT_THAT(seen, ElementsAre("activation blocks.0.qkv", "gradient blocks.0.qkv.weight",
                                "gradient blocks.0.qkv.bias", "parameter blocks.0.qkv.weight",
                                "parameter blocks.0.qkv.bias"));
}

// Of a batch with its ticket and files, next to other tensors.
TEST_F(TensorInspectorTest, RecordsInputsOfFirstBatch) {
  TensorInspector inspector(*model_, board_, {"image", "label"});
  const ring::BatchLayout layout({{"image", DType::kU8, {2}}, {"label", DType::kI64, {}}}, 3);
  const std::vector<uint8_t> image{0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> label{7, 7, 7};
  const feed::ReceivedBatch batch{
      .ticket = 17,
      .layout = layout,
      .tensors = {std::as_bytes(std::span(image)), std::as_bytes(std::span(label))}};
  inspector.open({.glob = "*a*e*",
                  .parameters = false,
                  .gradients = false,
                  .activations = false,
                  .inputs = true},
                 0, [this](Result<std::string> answer) { answer_ = std::move(answer); });
  ASSERT_TRUE(answer_.ok()) << answer_.status().to_string();
  EXPECT_THAT(*answer_, HasSubstr(R"("inputs":2)"));
  inspector.begin_step(4);
  inspector.on_batch(batch, [](uint64_t ticket) {
    std::vector<std::string> files(300, "a \"b\"");
    files.front() = std::to_string(ticket) + ".tar";
    return files;
  });
  inspector.end_step();
  const auto all = rows(1);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].at("ticket").to_number<int>(), 17);
  EXPECT_EQ(all[0].at("num_files").to_number<int>(), 300);
  const json::array& files = all[0].at("files").as_array();
  EXPECT_EQ(files.size(), control::OpenInspection::kMaxFiles);
  EXPECT_EQ(files[0].as_string(), "17.tar");
  EXPECT_EQ(files[1].as_string(), "a \"b\"");
  const json::array& tensors = all[0].at("tensors").as_array();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].at("kind").as_string(), "input");
  EXPECT_EQ(tensors[0].at("name").as_string(), "image");
  EXPECT_EQ(tensors[0].at("dtype").as_string(), "U8");
  EXPECT_EQ(tensors[0].at("shape"), json::parse("[3,2]"));
  EXPECT_EQ(tensors[0].at("mean").to_number<double>(), 2.5);
  EXPECT_EQ(tensors[1].at("shape"), json::parse("[3]"));
  EXPECT_EQ(tensors[1].at("max").to_number<double>(), 7);
}

TEST_F(TensorInspectorTest, RecordsAtIntervalUntilStepCount) {
  const auto inspection = open({.glob = "head.weight", .every = 3, .steps = 2}).at("inspection");
  for (int i = 0; i < 12; ++i) step();
  EXPECT_FALSE(inspections_.any());
  const auto all = rows(inspection.to_number<uint64_t>());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("step").to_number<int>(), 3);
  EXPECT_EQ(all[1].at("step").to_number<int>(), 6);
}

TEST_F(TensorInspectorTest, SupportsConcurrentInspectionsAndSkipsClosedOnes) {
  const auto one =
      open({.glob = "head.weight", .gradients = false, .activations = false}).at("inspection");
  const auto other = open({.glob = "*", .parameters = false, .gradients = false}).at("inspection");
  step();
  ASSERT_TRUE(board_.close(one.to_number<uint64_t>()).ok());
  step();
  EXPECT_TRUE(inspections_.any());
  EXPECT_EQ(rows(other.to_number<uint64_t>()).size(), 2u);
  clock_.advance(InspectionBoard::kLease + std::chrono::seconds(1));
  step();
  EXPECT_FALSE(inspections_.any());
}

TEST_F(TensorInspectorTest, SuggestsClosestNameOnUnknownGlob) {
  (void)open({.glob = "blocks.0.qvk.weight"});
  ASSERT_FALSE(answer_.ok());
  EXPECT_EQ(answer_.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(answer_.status().message(), HasSubstr("did you mean 'blocks.0.qkv.weight'?"));
  (void)open({.glob = "encoder.*"});
  EXPECT_THAT(answer_.status().message(), HasSubstr("available: tok"));
  EXPECT_FALSE(inspections_.any());
}

TEST_F(TensorInspectorTest, ReportsEndOfTrainingToClients) {
  const auto inspection = open({.glob = "head*"}).at("inspection").to_number<uint64_t>();
  step();
  inspections_.end_all("training ended");
  const json::value answer = json::parse(*board_.read(inspection, 0));
  EXPECT_EQ(answer.at("records").as_array().size(), 1u);
  EXPECT_EQ(answer.at("end_reason").as_string(), "training ended");
}

}  // namespace
}  // namespace stoker::train
