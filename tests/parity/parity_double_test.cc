// Compares image models in double precision with PyTorch (make_double.py): those that together have
// every kind of block, with STOKER_PARITY=all every one. STOKER_PARITY_DOUBLE is a newly generated
// file to compare with instead of the golden file, which has no others.
#include <cstdlib>
#include <string_view>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "tests/parity/case_parts.h"
#include "tests/parity/double_cases.h"
#include "tests/parity/formula.h"
#include "tests/parity/generated.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

// As in make_double.py.
constexpr int64_t kImageClasses = 5;
constexpr double kAuxWeight = 0.4;

// Double precision rounds at 1e-16. Sums of up to a million terms in another order, and norms over
// eight values, amplify that to 1e-12; float32 anywhere would appear as 1e-8 or more. Ten steps of
// a deep network amplify any difference: for inception_v3, 6e-9 was observed between one and two
// threads.
constexpr double kTolerance = 1e-10, kTrainingTolerance = 1e-7;
// For values that are 0 except for rounding, such as the gradient of a bias that a norm cancels.
constexpr double kAbsoluteTolerance = 1e-12;

const char* generated_file() { return generated("STOKER_PARITY_DOUBLE"); }

std::vector<DoubleCase> cases_to_compare() {
  std::vector<DoubleCase> cases = double_cases();
  const char* const models = std::getenv("STOKER_PARITY");
  if (generated_file() == nullptr || models == nullptr || std::string_view(models) != "all")
    std::erase_if(cases, [](const auto& each) { return !each.is_golden; });
  return cases;
}

struct Samples {
  at::Tensor input, label;
};

// The samples that make_double.py uses in this step.
Samples samples_of(const DoubleCase& each, int64_t step) {
  const int64_t number = step % 2, count = each.samples * 3 * each.side * each.side;
  return {noise(static_cast<uint64_t>(number * count), count)
              .view({each.samples, 3, each.side, each.side}),
          (at::arange(each.samples) * 2 + number).remainder(kImageClasses)};
}

at::Tensor loss_of(const model::Outputs& outputs, const at::Tensor& label) {
  const at::Tensor main = at::cross_entropy_loss(outputs.logits, label);
  if (!outputs.aux_logits.defined()) return main;
  return main + kAuxWeight * at::cross_entropy_loss(outputs.aux_logits, label);
}

at::Tensor logits_of(const model::Outputs& outputs) {
  if (!outputs.aux_logits.defined()) return outputs.logits.detach();
  return at::cat({outputs.logits, outputs.aux_logits}).detach();
}

class DoublePrecisionParityTest : public testing::TestWithParam<DoubleCase> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    const char* const generated = generated_file();
    auto file = checkpoint::SafetensorsFile::open(
        generated != nullptr ? generated : STOKER_PARITY_GOLDEN "/double/double.safetensors");
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
    const auto model = model::make_model(
        GetParam().model, labeled(DType::kF32, {3, GetParam().side, GetParam().side}),
        kImageClasses);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    model_ = *model;
    model_->to(at::kDouble);
    set_weights(*model_);
  }

  at::Tensor golden(const std::string& what) const {
    const auto tensor = read_tensor(*file_, GetParam().name + "/" + what);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return *tensor;
  }

  // The largest difference, relative to the largest element.
  void expect_close(const std::string& what, const at::Tensor& actual, double tolerance) const {
    const at::Tensor expected = golden(what);
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const double scale = expected.abs().max().item<double>();
    EXPECT_LE((actual - expected).abs().max().item<double>(), tolerance * scale)
        << what << ", largest element " << scale;
  }

  // Compares the stored values of each tensor, relative to its norm.
  void expect_stored(const std::string& what, const model::NamedTensors& actual,
                     double tolerance) const {
    const at::Tensor expected = golden(what);
    ASSERT_EQ(static_cast<int64_t>(actual.size()), expected.size(0)) << what;
    for (size_t i = 0; i < actual.size(); ++i) {
      const at::Tensor expected_values = expected[static_cast<int64_t>(i)];
      const double norm = expected_values[0].item<double>();
      EXPECT_LE((stored_values(actual[i].second) - expected_values).abs().max().item<double>(),
                tolerance * norm + kAbsoluteTolerance)
          << what << " of " << actual[i].first << ", norm " << norm;
    }
  }

  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  model::ModelPtr model_;
};

TEST_P(DoublePrecisionParityTest, MatchesPyTorchLogitsGradientsAndTraining) {
  model::NamedTensors parameters;
  for (const auto& item : model_->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  const auto optimizer = train::Optimizer::create(plain_sgd(/*momentum=*/0.9), {}, parameters);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<at::Tensor> losses, norms;
  model_->train();
  const int64_t steps = golden("losses").numel();
  for (int64_t step = 0; step < steps; ++step) {
    const Samples samples = samples_of(GetParam(), step);
    const model::Outputs outputs = model_->forward_with_aux(samples.input);
    losses.push_back(loss_of(outputs, samples.label));
    losses.back().backward();
    if (step == 0) {
      expect_close("logits", logits_of(outputs), kTolerance);
      model::NamedTensors gradients;
      for (const auto& [name, parameter] : parameters)
        gradients.emplace_back(name, parameter.grad());
      expect_stored("gradients", gradients, kTolerance);
    }
    norms.push_back((*optimizer)->step(plain_sgd(0.9).lr()));
    (*optimizer)->zero_grad();
  }
  expect_close("losses", at::stack(losses).detach(), kTrainingTolerance);
  expect_close("norms", at::stack(norms), kTrainingTolerance);
  expect_stored("final", model::named_tensors(*model_), kTrainingTolerance);
  const at::NoGradGuard no_grad;
  model_->eval();
  expect_close("evaluated", model_->forward(samples_of(GetParam(), 0).input), kTrainingTolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, DoublePrecisionParityTest, testing::ValuesIn(cases_to_compare()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::parity
