// Optimizers of lists of tensors, next to torch.optim of PyTorch 2.11 and timm.optim of timm 1.0.31.
#include "daemon/train/update_rules.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

struct Rule {
  const char* name;
  config::OptimizerVariant method;
  double lr;
  std::vector<double> expected;  // the elements of weight and bias after 50 steps
};

const std::vector<Rule> kRules{
    // NAdam(betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)
    {"Nadam",
     config::NadamConfig{.betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1},
     0.01,
     {-0.14258896, -0.11625003, -0.092008263, -0.054684132, -0.013096108, 0.0093424348, 0.022091666,
      0.016243476, 0.01348394, 0.035583995, 0.10186002, 0.1893972, 0.025668811, 0.015766991,
      0.016822521, 0.042847663, 0.10634889}},
    // NAdam(weight_decay=0.1, momentum_decay=0.01, decoupled_weight_decay=True)
    {"NadamDecoupled",
     config::NadamConfig{
         .weight_decay = 0.1, .momentum_decay = 0.01, .decoupled_weight_decay = true},
     0.01,
     {-0.13989323, -0.12109208, -0.10081909, -0.064088412, -0.020832784, 0.0041306508, 0.023685999,
      0.023788575, 0.026219487, 0.058237325, 0.10529615, 0.19247912, 0.03060616, 0.025010429,
      0.031569868, 0.062310405, 0.11102373}},
    // RAdam(betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1)
    {"Radam",
     config::RadamConfig{.betas = {0.9, 0.99}, .eps = 1e-6, .weight_decay = 0.1},
     0.01,
     {-0.3697294, -0.2858181, -0.20610783, -0.13555402, -0.07774049, -0.029250648, 0.023199037,
      0.077356987, 0.13778406, 0.20921707, 0.28689954, 0.36570114, 0.054280404, 0.10132533,
      0.15473914, 0.21506327, 0.27815977}},
    // RAdam(weight_decay=0.1, decoupled_weight_decay=True)
    {"RadamDecoupled",
     config::RadamConfig{.weight_decay = 0.1, .decoupled_weight_decay = true},
     0.01,
     {-0.43315479, -0.34625947, -0.25979197, -0.17980553, -0.1087731, -0.041918684, 0.030195976,
      0.10786779, 0.18913648, 0.27041882, 0.34872726, 0.42483097, 0.074841224, 0.14111461,
      0.20981963, 0.27623782, 0.33894828}},
    // Adamax(weight_decay=0.1)
    {"Adamax",
     config::AdamaxConfig{.weight_decay = 0.1},
     0.01,
     {-0.22762139, -0.16146709, -0.10782994, -0.072523221, -0.042369876, -0.036430258, 0.0046627312,
      0.040828902, 0.086548164, 0.12727648, 0.16318409, 0.22878987, 0.022232484, 0.057457402,
      0.099252537, 0.13275908, 0.15619047}},
    // Adadelta(weight_decay=0.1)
    {"Adadelta",
     config::AdadeltaConfig{.weight_decay = 0.1},
     0.5,
     {-0.37874168, -0.32811123, -0.26809949, -0.19080688, -0.10476705, -0.026778061, 0.037790332,
      0.10650086, 0.16098078, 0.18351644, 0.30854434, 0.43118829, 0.081103235, 0.13528793,
      0.16694288, 0.20882709, 0.31345519}},
    // Adafactor(weight_decay=0.1)
    {"Adafactor",
     config::AdafactorConfig{.weight_decay = 0.1},
     0.01,
     {-0.34925359, -0.28528836, -0.22794214, -0.16284692, -0.090393104, -0.028416561, 0.03411201,
      0.082650036, 0.16658135, 0.2310947, 0.29494968, 0.36248755, 0.06755475, 0.11909335,
      0.17851679, 0.23650977, 0.29893154}},
    // Adafactor(beta2_decay=-0.5, eps=(1e-2, 0.3), d=1.5)
    {"AdafactorLimits",
     config::AdafactorConfig{.beta2_decay = -0.5, .eps = {1e-2, 0.3}, .d = 1.5},
     0.05,
     {-0.026689744, -0.067188501, -0.082927257, -0.037933007, -0.018228272, 0.037532203,
      0.042413972, -0.011949711, 0.0049099303, 0.025179505, 0.072508968, 0.11096541, 0.031655036,
      -0.0073849712, -0.018811498, 0.015251156, 0.076811537}},
    // Lamb(betas=(0.9, 0.99), weight_decay=0.1, max_grad_norm=None)
    {"Lamb",
     config::LambConfig{.betas = {0.9, 0.99}, .weight_decay = 0.1},
     0.01,
     {-0.33169711, -0.25694633, -0.18876721, -0.12657924, -0.076859042, -0.042693585, 0.017217042,
      0.075568937, 0.13602386, 0.2025245, 0.25512388, 0.33991924, 0.050600715, 0.10644904,
      0.16585311, 0.21493137, 0.25939664}},
    // Lamb(weight_decay=0, always_adapt=True, trust_clip=True, max_grad_norm=None)
    {"LambClipped",
     config::LambConfig{.weight_decay = 0, .trust_clip = true, .always_adapt = true},
     0.01,
     {-0.33326638, -0.25828078, -0.18976709, -0.12674527, -0.076362759, -0.042901754, 0.016973229,
      0.075109996, 0.13519813, 0.20248611, 0.25604731, 0.34303918, 0.050477561, 0.10640343,
      0.16611168, 0.21578325, 0.26120996}},
    // Lamb(weight_decay=0, max_grad_norm=None)
    {"LambPlain",
     config::LambConfig{.weight_decay = 0},
     0.01,
     {-0.12910679, -0.08720199, -0.059853114, -0.039978068, -0.027743291, -0.022515304,
      0.0068895435, 0.02723169, 0.043776046, 0.073888317, 0.08174184, 0.1529683, 0.017713755,
      0.03254177, 0.051370107, 0.069773108, 0.080183432}},
    // Lars(momentum=0.9, nesterov=True, weight_decay=0.1, trust_coeff=0.02)
    {"Lars",
     config::LarsConfig{
         .momentum = 0.9, .nesterov = true, .weight_decay = 0.1, .trust_coeff = 0.02},
     0.1,
     {-0.26989341, -0.21958929, -0.16338493, -0.10940112, -0.063717328, -0.024781758, 0.015161427,
      0.062941827, 0.11818353, 0.17365062, 0.22190006, 0.26212478, 0.035315026, 0.096472129,
      0.1539579, 0.19135955, 0.21072941}},
    // Lars(weight_decay=0.1, trust_coeff=0.02, trust_clip=True)
    {"LarsClipped",
     config::LarsConfig{.weight_decay = 0.1, .trust_coeff = 0.02, .trust_clip = true},
     0.01,
     {-0.36805111, -0.30233249, -0.23703288, -0.17032574, -0.10167861, -0.032342672, 0.035797603,
      0.10195708, 0.16717182, 0.23334613, 0.3015027, 0.37084112, 0.076038286, 0.1299818, 0.18350634,
      0.23843847, 0.29531038}},
    // Lars(momentum=0.9)
    {"LarsPlain",
     config::LarsConfig{.momentum = 0.9},
     0.01,
     {0.023269691, 0.019257402, 0.0028751104, -0.01200095, -0.012879416, -0.00013822553, 0.01332284,
      0.013942161, -3.527636e-05, -0.016944258, -0.022424364, -0.012622797, 0.014758749,
      0.010972137, -0.0051844977, -0.019834887, -0.020487698}},
    // AdamWScheduleFree(weight_decay=0.1) of schedulefree 1.4.1 (tests/parity/make_recipe_numbers.py)
    {"ScheduleFreeAdamW",
     config::ScheduleFreeAdamWConfig{.weight_decay = 0.1},
     0.01,
     {-0.23171484, -0.19325563, -0.15371382, -0.10345558, -0.056378536, -0.029927097, 0.020872654,
      0.056762964, 0.086803317, 0.12430809, 0.17636511, 0.28402683, 0.043499943, 0.069296643,
      0.096621506, 0.12431153, 0.18074657}},
    // AdamWScheduleFree(betas=(0.95, 0.99), eps=1e-6)
    {"ScheduleFreeAdamWBetas",
     config::ScheduleFreeAdamWConfig{.betas = {0.95, 0.99}, .eps = 1e-6},
     0.02,
     {-0.071592599, -0.069334462, -0.063143313, -0.040661924, -0.016506512, -0.0032169803,
      0.015660744, 0.018046338, 0.012266064, 0.01486622, 0.04672917, 0.14855777, 0.020214915,
      0.016598808, 0.012855818, 0.015252971, 0.057352159}},
};

constexpr int kSteps = 50;

// The state of an optimizer as a checkpoint has it.
class SavedState final : public checkpoint::TensorRangeSource {
 public:
  explicit SavedState(const NamedTensors& state) {
    for (const auto& [name, tensor] : state) {
      specs_.push_back(model::to_tensor_spec(name, tensor));
      tensors_[name] = tensor.clone().contiguous();
    }
  }
  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  const TensorSpec* find(const std::string& name) const override {
    for (const TensorSpec& spec : specs_)
      if (spec.name == name) return &spec;
    return nullptr;
  }
  Status read(const std::string& name, std::span<std::byte> out) const override {
    return read_part(name, 0, out);
  }
  Status read_part(const std::string& name, uint64_t offset,
                   std::span<std::byte> out) const override {
    const auto* const bytes = static_cast<const std::byte*>(tensors_.at(name).const_data_ptr());
    std::copy_n(bytes + offset, out.size(), out.begin());
    return {};
  }

 private:
  std::vector<TensorSpec> specs_;
  std::map<std::string, at::Tensor> tensors_;
};

class UpdateRuleTest : public ::testing::TestWithParam<Rule> {
 protected:
  struct Training {
    NamedTensors parameters{
        {"weight", at::linspace(-0.5, 0.5, 12).to(at::kFloat).view({3, 4}).requires_grad_()},
        {"bias", at::linspace(0.1, 0.4, 5).to(at::kFloat).requires_grad_()}};
    std::unique_ptr<Optimizer> optimizer;

    Training() {
      config::TrainConfig train;
      train.max_grad_norm.reset();
      auto made = Optimizer::create({.method = GetParam().method}, train, parameters);
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      optimizer = *std::move(made);
    }
    // The gradient depends on parameter and step.
    void train(int first, int end) {
      for (int step = first; step < end; ++step) {
        optimizer->zero_grad();
        {
          const at::NoGradGuard no_grad;
          for (const auto& [name, tensor] : parameters)
            tensor.mutable_grad().copy_(
                tensor * 0.5 + 0.2 * at::cos(0.37 * step + at::arange(tensor.numel(), at::kFloat))
                                         .view(tensor.sizes()));
        }
        optimizer->step(GetParam().lr);
      }
    }
    at::Tensor values() const {
      return at::cat({parameters[0].second.detach().flatten(), parameters[1].second.detach()});
    }
  };
};

TEST_P(UpdateRuleTest, TrainsAsReference) {
  Training training;
  training.train(0, kSteps);
  const at::Tensor values = training.values();
  ASSERT_EQ(static_cast<size_t>(values.numel()), GetParam().expected.size());
  for (size_t i = 0; i < GetParam().expected.size(); ++i)
    EXPECT_NEAR(values[static_cast<int64_t>(i)].item<double>(), GetParam().expected[i], 1e-6) << i;
}

// A learning rate in memory, as that of a device, which captured graphs read.
TEST_P(UpdateRuleTest, TrainsEquallyWithLearningRateInTensor) {
  Training plain, with_tensor;
  with_tensor.optimizer->use_device_lr();
  plain.train(0, kSteps);
  with_tensor.train(0, kSteps);
  EXPECT_TRUE(at::allclose(with_tensor.values(), plain.values(), 0, 1e-6));
}

TEST_P(UpdateRuleTest, ContinuesBitForBitFromSavedState) {
  Training whole, first, second;
  whole.train(0, kSteps);
  first.train(0, 20);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < second.parameters.size(); ++i)
      second.parameters[i].second.copy_(first.parameters[i].second);
  }
  const Status loaded = second.optimizer->load(SavedState(first.optimizer->state()));
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  second.train(20, kSteps);
  EXPECT_TRUE(at::equal(second.values(), whole.values()));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, UpdateRuleTest, ::testing::ValuesIn(kRules),
                         [](const auto& each) { return std::string(each.param.name); });

// The weights of AdamWScheduleFree(lr=0.02, warmup_steps=10) after 50 steps, in train() and in eval().
TEST(ScheduleFreeAdamWTest, HasAveragesOfReferenceAfterWarmup) {
  NamedTensors parameters{
      {"weight", at::linspace(-0.5, 0.5, 12).to(at::kFloat).view({3, 4}).requires_grad_()},
      {"bias", at::linspace(0.1, 0.4, 5).to(at::kFloat).requires_grad_()}};
  config::TrainConfig train;
  train.max_grad_norm.reset();
  const auto optimizer =
      *Optimizer::create({.method = config::ScheduleFreeAdamWConfig{}}, train, parameters);
  for (const auto& [name, average] : optimizer->averages())
    EXPECT_TRUE(at::equal(average, parameters[name == "bias" ? 1 : 0].second.detach()))
        << "before the first step";
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    {
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : parameters)
        tensor.mutable_grad().copy_(
            tensor * 0.5 +
            0.2 *
                at::cos(0.37 * step + at::arange(tensor.numel(), at::kFloat)).view(tensor.sizes()));
    }
    optimizer->step(0.02 * std::min(1.0, (step + 1) / 10.0));
  }
  const std::vector<float> trained{
      -0.1141126F,  -0.10765631F,  -0.088211805F,  -0.047355831F, -0.0023413931F, 0.013014639F,
      0.015632225F, 0.0058930512F, -0.0042853355F, 0.020165021F,  0.089062266F,   0.18221736F,
      0.017856011F, 0.0026800241F, -0.0015238383F, 0.028879616F,  0.096894696F};
  const std::vector<float> evaluated{
      -0.13547489F, -0.12244673F, -0.09796457F,  -0.055530056F, -0.010940551F, 0.0054971883F,
      0.014945923F, 0.013952792F, 0.0083252592F, 0.03447197F,   0.10478863F,   0.20008427F,
      0.020913297F, 0.01300266F,  0.011675839F,  0.04264928F,   0.1115393F};
  const auto flat = [](const NamedTensors& tensors) {
    std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
    return at::cat({by_name.at("weight").detach().flatten(), by_name.at("bias").detach()});
  };
  EXPECT_TRUE(at::allclose(flat(parameters), at::tensor(trained), 0, 1e-6)) << flat(parameters);
  const at::Tensor averages = flat(optimizer->averages());
  EXPECT_TRUE(at::allclose(averages, at::tensor(evaluated), 0, 1e-6)) << averages;
}

}  // namespace
}  // namespace stoker::train
