// Compares the published models (docs/published.md) with results of TensorFlow
// (make_tensorflow.py). STOKER_PARITY_TENSORFLOW is a newly generated folder; without it, the golden
// files are used.
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "tests/parity/case_parts.h"
#include "tests/parity/generated.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

constexpr int kTensorflowSteps = 3;
constexpr int64_t kUnits = 3;  // of the blstm

struct TensorflowCase {
  std::string name;
  config::ModelConfig model;
  std::vector<int64_t> input;
  double lr;
};
void PrintTo(const TensorflowCase& each, std::ostream* out) { *out << each.name; }

// As in config/published-mlp.yaml and config/published-blstm.yaml.
std::vector<TensorflowCase> tensorflow_cases() {
  return {{"mlp", {.arch = config::MlpConfig{.hidden_sizes = {8}}, .num_classes = 1}, {10}, 1e-2},
          {"blstm",
           {.arch =
                config::BlstmConfig{
                    .hidden_size = kUnits, .pooling = config::Pooling::kMean, .forget_bias = 1},
            .num_classes = 1,
            .init = {{"lstm.bias_*", config::ZerosInit{}}},
            .freeze = {"lstm.bias_hh_*"}},
           {5, 6},
           1e-3}};
}

class TensorflowParityTest : public ::testing::TestWithParam<TensorflowCase> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    const char* const generated = parity::generated("STOKER_PARITY_TENSORFLOW");
    const std::string folder =
        generated != nullptr ? generated : STOKER_PARITY_GOLDEN "/tensorflow";
    auto file = checkpoint::SafetensorsFile::open(folder + '/' + GetParam().name + ".safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
    auto made = model::make_model(GetParam().model, sample_, 2);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    model_ = *std::move(made);
    const auto frozen = model::freeze(*model_, GetParam().model.freeze);
    ASSERT_TRUE(frozen.ok()) << frozen.status().to_string();
    for (const auto& item : model_->named_parameters())
      if (item.value().requires_grad()) trained_.emplace_back(item.key(), item.value());
  }

  at::Tensor golden(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return *tensor;
  }
  // TensorFlow adds the forget bias in each step, stoker once to the initial bias.
  at::Tensor golden_weight(const std::string& when, const std::string& name) const {
    at::Tensor weight = golden(when + '/' + name);
    if (name.starts_with("lstm.bias_ih")) weight.narrow(0, kUnits, kUnits).add_(1);
    return weight;
  }
  // The largest difference, relative to the largest element.
  static void expect_close(const std::string& name, const at::Tensor& actual,
                           const at::Tensor& expected, double tolerance) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    EXPECT_LE((actual.detach() - expected).abs().max().item<double>(),
              tolerance * expected.abs().max().item<double>())
        << name;
  }

  const std::vector<TensorSpec> sample_ = labeled(DType::kF32, GetParam().input);
  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  model::ModelPtr model_;
  model::NamedTensors trained_;
};

TEST_P(TensorflowParityTest, MatchesLossGradientsAndWeightsOfThreeSteps) {
  for (auto& [name, parameter] : trained_) {
    const at::NoGradGuard no_grad;
    parameter.copy_(golden_weight("initial", name));
  }
  const auto task = task::make_task({config::BinaryClassificationTask{}}, nullptr, sample_, 2);
  ASSERT_TRUE(task.ok()) << task.status().to_string();
  const auto optimizer = train::Optimizer::create(
      {.method = config::AdamConfig{.lr = GetParam().lr, .betas = {0.9, 0.999}}}, kUnclipped,
      trained_);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  const at::Tensor losses = golden("losses");
  for (int step = 0; step < kTensorflowSteps; ++step) {
    const std::string batch = "batch" + std::to_string(step);
    const at::Tensor loss =
        (*task)->loss(*model_, {golden(batch + "/input"), golden(batch + "/label")});
    EXPECT_NEAR(loss.item<double>(), losses[step].item<double>(), 1e-5) << "step " << step;
    loss.backward();
    for (const auto& [name, parameter] : trained_)
      expect_close("gradient of step " + std::to_string(step) + " of " + name, parameter.grad(),
                   golden("gradient" + std::to_string(step) + '/' + name), 1e-4);
    (*optimizer)->step(GetParam().lr);
    (*optimizer)->zero_grad();
  }
  for (const auto& [name, parameter] : trained_)
    expect_close("final " + name, parameter, golden_weight("final", name), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, TensorflowParityTest, ::testing::ValuesIn(tensorflow_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::parity
