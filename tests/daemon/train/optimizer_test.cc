// Parameter groups. The optimizers' arithmetic is compared with PyTorch in tests/parity.
#include "daemon/train/optimizer.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/muon.h"

namespace stoker::train {
namespace {

using config::OptimizerConfig;
using config::OptimizerName;
using ::testing::HasSubstr;

struct Parameters {
  NamedTensors all;

  explicit Parameters(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto seed = static_cast<double>(name.front());
      at::Tensor tensor = at::linspace(seed, seed + 1, 6).to(at::kFloat);
      if (!name.ends_with('b')) tensor = tensor.view({2, 3});  // a matrix, for muon
      all.emplace_back(name, tensor.requires_grad_());
    }
  }
  // The gradient depends only on name and step.
  at::Tensor gradient(const std::string& name, int step) const {
    return at::linspace(-1.0, 0.1 * step + static_cast<double>(name.back()) / 100, 6)
        .view(at(name).sizes());
  }
  void set_gradients(int step) const {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : all) tensor.mutable_grad().copy_(gradient(name, step));
  }
  // The backward pass of a loss with these gradients.
  void backward(int step) const {
    at::Tensor loss = at::zeros({});
    for (const auto& [name, tensor] : all) loss = loss + (tensor * gradient(name, step)).sum();
    loss.backward();
  }
  const at::Tensor& at(const std::string& name) const {
    for (const auto& [each, tensor] : all)
      if (each == name) return tensor;
    ADD_FAILURE() << name;
    return all.front().second;
  }
};

const config::TrainConfig kUnclipped{.max_grad_norm = std::nullopt};

void train(const OptimizerConfig& config, const Parameters& parameters, double lr,
           const config::TrainConfig& options = kUnclipped) {
  const auto optimizer = Optimizer::create(config, options, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  for (int step = 0; step < 5; ++step) {
    parameters.set_gradients(step);
    (*optimizer)->step(lr);
  }
}

at::Tensor do_step(Optimizer& optimizer, const Parameters& parameters, int step) {
  optimizer.zero_grad();
  parameters.backward(step);
  return optimizer.step(0.1);
}

void check_frozen(const config::TrainConfig& options, bool takes_gradients) {
  const OptimizerConfig config{.method = config::AdamWConfig{},
                               .param_groups = {{.params = "b*", .lr_scale = 2}}};
  const Parameters frozen({"a1", "b1", "b2"}), free({"a1", "b1", "b2"});
  const auto optimizer = Optimizer::create(config, options, frozen.all, {"a1", "b1"});
  const auto other = Optimizer::create(config, options, free.all);
  ASSERT_TRUE(optimizer.ok() && other.ok()) << optimizer.status().to_string();
  if (takes_gradients)
    for (Optimizer* const each : {optimizer->get(), other->get()}) each->take_gradients();
  (*optimizer)->set_frozen(true);
  EXPECT_FALSE(frozen.at("a1").requires_grad());
  EXPECT_TRUE(frozen.at("b2").requires_grad());
  const at::Tensor norm = do_step(**optimizer, frozen, 0);
  EXPECT_NEAR(norm.item<double>(), frozen.gradient("b2", 0).norm().item<double>(), 1e-5);
  EXPECT_TRUE(at::equal(frozen.at("a1"), free.at("a1")));
  EXPECT_TRUE(at::equal(frozen.at("b1"), free.at("b1")));
  EXPECT_FALSE(at::equal(frozen.at("b2"), free.at("b2")));
  for (const auto& [name, tensor] : (*optimizer)->state())
    EXPECT_EQ(tensor.abs().sum().item<double>() > 0, name.ends_with("b2")) << name;
  // Then they are trained as from the start.
  (*optimizer)->set_frozen(false);
  EXPECT_TRUE(frozen.at("a1").requires_grad());
  for (int step = 0; step < 5; ++step) {
    const at::Tensor of_all = do_step(**optimizer, frozen, step);
    EXPECT_NEAR(of_all.item<double>(), do_step(**other, free, step).item<double>(), 1e-5);
  }
  for (const std::string name : {"a1", "b1"})
    EXPECT_TRUE(at::allclose(frozen.at(name), free.at(name), 0, 1e-5)) << name;
}

TEST(OptimizerTest, KeepsFrozenParametersAndTheirState) {
  for (const bool takes_gradients : {false, true})
    for (const std::optional<double> max_norm : {std::optional<double>(), std::optional(0.5)}) {
      SCOPED_TRACE(std::string(takes_gradients ? "taken" : "flat") + (max_norm ? ", clipped" : ""));
      check_frozen({.max_grad_norm = max_norm}, takes_gradients);
    }
}

TEST(OptimizerTest, RequiresParameterThatIsNotFrozen) {
  const Parameters parameters({"a", "b"});
  const auto optimizer = Optimizer::create({}, kUnclipped, parameters.all, {"a", "b"});
  EXPECT_EQ(optimizer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(optimizer.status().message(), HasSubstr("no parameter to train (see model.freeze)"));
}

struct Method {
  std::string name;
  config::OptimizerVariant options;
};
void PrintTo(const Method& method, std::ostream* out) { *out << method.name; }

class ParamGroupsTest : public ::testing::TestWithParam<Method> {
 protected:
  OptimizerConfig config(double weight_decay = 0.1) const {
    config::OptimizerVariant method = GetParam().options;
    std::visit([&](auto& each) { each.weight_decay = weight_decay; }, method);
    return {.method = method};
  }
};

// Each group must be updated as by a separate optimizer with the group's settings.
TEST_P(ParamGroupsTest, MatchesSeparateOptimizerPerGroup) {
  const Parameters together({"a.w", "a.b", "c.w", "d.w"});
  OptimizerConfig grouped = config();
  grouped.param_groups = {{.params = "a.*", .lr_scale = 0.25, .weight_decay = 0.0},
                          {.params = "[ad].w", .lr_scale = 3}};
  train(grouped, together, 0.01);
  const Parameters first({"a.w", "a.b"}), second({"d.w"}), rest({"c.w"});
  train(config(/*weight_decay=*/0), first, 0.01 * 0.25);
  train(config(), second, 0.01 * 3);
  train(config(), rest, 0.01);
  for (const Parameters* const alone : {&first, &second, &rest})
    for (const auto& [name, tensor] : alone->all)
      EXPECT_TRUE(at::equal(together.at(name), tensor)) << name;
}

TEST_P(ParamGroupsTest, ClipsInKernelsAsBefore) {
  // With muon, some groups have a kernel that scales, and others have not.
  for (const double max_norm : {0.5, 1e6}) {
    const Parameters before({"a", "b"}), within({"a", "b"});
    const config::TrainConfig options{.max_grad_norm = max_norm};
    const auto first = Optimizer::create(config(), options, before.all);
    const auto second = Optimizer::create(config(), options, within.all);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status().to_string();
    (*second)->scale_in_kernels();
    for (int step = 0; step < 5; ++step) {
      before.set_gradients(step);
      within.set_gradients(step);
      const at::Tensor norm = (*first)->step(0.01);
      EXPECT_TRUE(at::equal((*second)->step(0.01), norm)) << "the norm before clipping";
      for (const std::string name : {"a", "b"})
        EXPECT_TRUE(at::allclose(within.at(name).grad(), before.at(name).grad(), 1e-6, 0))
            << name << ": gradients are clipped, too";
    }
    for (const std::string name : {"a", "b"})
      EXPECT_TRUE(at::allclose(within.at(name), before.at(name), 1e-5, 1e-6)) << name;
  }
}

TEST_P(ParamGroupsTest, DoesNotChangeResultWithEqualSettings) {
  const Parameters one({"a", "b", "c"}), grouped({"a", "b", "c"});
  const config::TrainConfig clipped{.max_grad_norm = 0.5};  // over all groups together
  OptimizerConfig with_groups = config();
  with_groups.param_groups = {{.params = "b"}, {.params = "a"}};
  train(config(), one, 0.02, clipped);
  train(with_groups, grouped, 0.02, clipped);
  for (const auto& [name, tensor] : one.all)
    EXPECT_TRUE(at::allclose(grouped.at(name), tensor, 0, 1e-6)) << name;
}

TEST_P(ParamGroupsTest, PreservesNamesOfOptimizerState) {
  const Parameters parameters({"a", "b", "c"});
  OptimizerConfig grouped = config();
  grouped.param_groups = {{.params = "b"}};
  const auto with = Optimizer::create(grouped, kUnclipped, parameters.all);
  const auto without = Optimizer::create(config(), kUnclipped, parameters.all);
  ASSERT_TRUE(with.ok() && without.ok());
  ASSERT_EQ((*with)->state().size(), (*without)->state().size());
  for (size_t i = 0; i < (*with)->state().size(); ++i)
    EXPECT_EQ((*with)->state()[i].first, (*without)->state()[i].first);
}

TEST_P(ParamGroupsTest, DoesNotChangeAnyBitOnNonfiniteLoss) {
  const Parameters parameters({"a.w", "c.w"});
  auto options = config();
  options.param_groups = {{.params = "c.*", .lr_scale = 0.5}};
  const auto optimizer = Optimizer::create(options, kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  parameters.set_gradients(1);
  (*optimizer)->set_lr(0.1);
  (*optimizer)->update_if_finite(at::scalar_tensor(1.0));
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : parameters.all) before.push_back(tensor.detach().clone());
  for (const auto& [name, tensor] : (*optimizer)->state()) before.push_back(tensor.clone());
  parameters.set_gradients(2);
  {
    const at::NoGradGuard no_grad;
    parameters.at("a.w").mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  }
  (*optimizer)->set_lr(0.1);
  (*optimizer)->update_if_finite(at::scalar_tensor(1.0));
  EXPECT_EQ((*optimizer)->skipped().item<float>(), 1.0F);
  size_t at = 0;
  for (const auto& [name, tensor] : parameters.all)
    EXPECT_TRUE(at::equal(tensor.detach(), before[at++])) << name;
  for (const auto& [name, tensor] : (*optimizer)->state())
    EXPECT_TRUE(at::equal(tensor, before[at++])) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ParamGroupsTest,
    ::testing::Values(
        Method{"sgd", config::SgdConfig{}}, Method{"momentum", config::SgdConfig{.momentum = 0.9}},
        Method{"adam", config::AdamConfig{}}, Method{"adamw", config::AdamWConfig{}},
        Method{"rmsprop", config::RmspropConfig{.momentum = 0.9}},
        Method{"adagrad", config::AdagradConfig{}}, Method{"lion", config::LionConfig{}},
        Method{"muon", config::MuonConfig{}}, Method{"nadam", config::NadamConfig{}},
        Method{"radam", config::RadamConfig{}}, Method{"adamax", config::AdamaxConfig{}},
        Method{"adadelta", config::AdadeltaConfig{}},
        Method{"adafactor", config::AdafactorConfig{}}, Method{"lamb", config::LambConfig{}},
        Method{"lars", config::LarsConfig{.momentum = 0.9}},
        Method{"schedule_free_adamw", config::ScheduleFreeAdamWConfig{}}));

TEST(MuonTest, UsesAdamwForParametersOtherThanHiddenMatrices) {
  const Parameters parameters({"tok.w", "a.w", "a.b", "c.w"});
  const auto optimizer =
      Optimizer::create({.method = config::MuonConfig{}, .param_groups = {{.params = "a.*"}}},
                        kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<std::pair<std::string, OptimizerName>> found;
  for (const auto& group : (*optimizer)->groups())
    for (const at::Tensor& each : group.parameters)
      for (const auto& [name, tensor] : parameters.all)
        if (each.is_same(tensor)) found.emplace_back(name, group.name);
  EXPECT_THAT(found, ::testing::ElementsAre(::testing::Pair("c.w", OptimizerName::kMuon),
                                            ::testing::Pair("a.w", OptimizerName::kMuon),
                                            ::testing::Pair("tok.w", OptimizerName::kAdamW),
                                            ::testing::Pair("a.b", OptimizerName::kAdamW)));
  std::vector<std::string> state;
  for (const auto& [name, tensor] : (*optimizer)->state()) state.push_back(name);
  EXPECT_THAT(state, ::testing::ElementsAre("exp_avg.tok.w", "exp_avg_sq.tok.w", "step.tok.w",
                                            "momentum_buffer.a.w", "exp_avg.a.b", "exp_avg_sq.a.b",
                                            "step.a.b", "momentum_buffer.c.w"));
}

// The singular values of an update are near 1 for any gradient, multiplied by 0.2 times the square
// root of the longer side.
TEST(MuonTest, OrthogonalizesUpdateOfMatrix) {
  const at::Tensor matrix = at::zeros({4, 6}).requires_grad_();
  const auto optimizer = Optimizer::create({.method = config::MuonConfig{.weight_decay = 0}},
                                           kUnclipped, {{"a", matrix}});
  ASSERT_TRUE(optimizer.ok());
  {
    const at::NoGradGuard no_grad;
    matrix.mutable_grad().zero_();
    for (int64_t i = 0; i < 4; ++i) matrix.mutable_grad()[i][i].fill_(1 + i);
  }
  (*optimizer)->step(0.1);
  const at::Tensor values = at::linalg_svdvals(matrix.detach()) / (0.1 * 0.2 * std::sqrt(6.0));
  EXPECT_GT(values.min().item<double>(), 0.6);
  EXPECT_LT(values.max().item<double>(), 1.4);
}

// On a device the learning rate is a tensor, with which the update must not be rounded to bf16.
TEST(MuonTest, AppliesLearningRateOfDeviceInFp32) {
  const config::MuonConfig config;
  const auto updated = [&](bool has_device_lr) {
    Optimizer::Group group;
    group.lr = 0.0123;
    group.parameters = {at::zeros({4, 6})};
    group.gradients = {at::arange(24, at::kFloat).sin().view({4, 6})};
    group.momentum_buffers = {at::zeros({4, 6})};
    if (has_device_lr) group.device_lr = at::full({}, group.lr, at::kFloat);
    muon_step(config, group);
    return group.parameters.front();
  };
  EXPECT_TRUE(at::allclose(updated(true), updated(false), /*rtol=*/1e-5, /*atol=*/0));
}

// As the float of schedulefree: of F32, 2^24 + 1 is 2^24.
TEST(ScheduleFreeAdamWTest, AddsWeightsOfManySteps) {
  const Parameters parameters({"a.w"});
  const auto optimizer =
      Optimizer::create({.method = config::ScheduleFreeAdamWConfig{}}, kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  const at::Tensor sum = (*optimizer)->groups().front().weight_sums.front();
  sum.fill_(0x1p24);
  (*optimizer)->zero_grad();
  (*optimizer)->step(1);
  EXPECT_EQ(sum.item<double>(), 0x1p24 + 1);
}

TEST(OptimizerTest, KeepsSgdStateOnlyWithMomentum) {
  const Parameters parameters({"a.w"});
  const auto state_with = [&](double momentum) {
    const auto optimizer = Optimizer::create({.method = config::SgdConfig{.momentum = momentum}},
                                             kUnclipped, parameters.all);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : (*optimizer)->state()) names.push_back(name);
    return names;
  };
  EXPECT_THAT(state_with(0), ::testing::IsEmpty());
  EXPECT_THAT(state_with(0.9), ::testing::ElementsAre("momentum_buffer.a.w"));
}

TEST(OptimizerTest, AssignsParameterToFirstMatchingGroup) {
  const Parameters parameters({"a.w", "a.b", "c.w"});
  const auto optimizer = Optimizer::create({.param_groups = {{.params = "*.b"}, {.params = "a.*"}}},
                                           kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok());
  const auto& groups = (*optimizer)->groups();
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].match, "");
  EXPECT_TRUE(groups[0].parameters.front().is_same(parameters.at("c.w")));
  EXPECT_EQ(groups[1].match, "*.b");
  EXPECT_TRUE(groups[1].parameters.front().is_same(parameters.at("a.b")));
  EXPECT_EQ(groups[2].match, "a.*");
  EXPECT_TRUE(groups[2].parameters.front().is_same(parameters.at("a.w")));
}

TEST(OptimizerTest, RejectsGroupWithoutParameters) {
  const Parameters parameters({"a.w", "a.b"});
  for (const std::vector<config::ParamGroup>& groups :
       {std::vector<config::ParamGroup>{{.params = "x.*"}}, {{.params = "*"}, {.params = "a.w"}}}) {
    const auto optimizer = Optimizer::create({.param_groups = groups}, kUnclipped, parameters.all);
    ASSERT_EQ(optimizer.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(optimizer.status().message(), HasSubstr("'" + groups.back().params + "'"));
  }
  EXPECT_TRUE(
      Optimizer::create({.param_groups = {{.params = "*"}}}, kUnclipped, parameters.all).ok());
}

TEST(OptimizerGradientsTest, AreStoredInOneAlignedBufferWithLayoutOfParameters) {
  const auto parameter = [](const at::Tensor& tensor) {
    return at::Tensor(tensor).requires_grad_();
  };
  const NamedTensors parameters{
      {"bias", parameter(at::zeros({3}))},
      {"conv", parameter(at::zeros({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast))},
      {"matrix", parameter(at::zeros({5, 7}))}};
  const auto made = Optimizer::create({}, kUnclipped, parameters);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Optimizer& optimizer = **made;
  ASSERT_EQ(optimizer.flat_gradients().size(), 1u);
  const at::Tensor& flat = optimizer.flat_gradients().front();
  EXPECT_EQ(flat.numel(), 16 + 48 + 48);
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor& gradient = tensor.grad();
    EXPECT_EQ(gradient.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(gradient.strides(), tensor.strides()) << name;
    EXPECT_EQ(gradient.storage().data(), flat.storage().data()) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % 64, 0u) << name;
    const at::NoGradGuard no_grad;
    gradient.fill_(1);
  }
  EXPECT_EQ(flat.sum().item<float>(), 3 + 48 + 35) << "gradients do not overlap";
  optimizer.zero_grad();
  EXPECT_EQ(parameters[2].second.grad().sum().item<float>(), 0);
}

TEST(OptimizerGradientsTest, AreTensorsOfBackwardPassWhenTaken) {
  const auto updated = [](bool takes) {
    const Parameters parameters({"a.w", "a.b", "c.w"});
    const auto optimizer =
        *Optimizer::create({.method = config::AdamWConfig{}}, {}, parameters.all);
    if (takes) optimizer->take_gradients();
    for (int step = 1; step <= 3; ++step) {
      EXPECT_NE(parameters.at("a.w").grad().defined(), takes);
      const at::Tensor loss = (parameters.at("a.w") * step).square().sum() +
                              (parameters.at("a.b") * parameters.at("a.b")).sum();
      loss.backward();  // does not reach c.w
      EXPECT_EQ(optimizer->gradients().size(), 3u);
      EXPECT_TRUE(optimizer->gradients()[1].is_same(parameters.at("a.b").grad()));
      optimizer->step(0.1);
      optimizer->zero_grad();
    }
    EXPECT_EQ(optimizer->flat_gradients().empty(), takes);
    std::vector<at::Tensor> values;
    for (const auto& [name, tensor] : parameters.all) values.push_back(tensor.detach());
    return at::cat({values[0].flatten(), values[1], values[2].flatten()});
  };
  EXPECT_TRUE(at::equal(updated(true), updated(false)));
}

// ---- Parameters without a gradient

// After five steps of torch.optim of PyTorch 2.11 at lr 0.1 (lion: of the paper's algorithm): the first and the last element
// of a1 and of bb, from tests/parity/make_numbers.py. The gradient is None for bb in the second and fifth step, and for a1 in
// the third. Muon updates the matrix a1, in bf16, and adamw the vector bb.
struct WithoutGradient {
  config::OptimizerVariant method;
  std::vector<double> expected;
  double tolerance = 1e-4;
};
const std::vector<WithoutGradient> kWithoutGradient{
    {config::SgdConfig{.momentum = 0.9, .weight_decay = 0.1},
     {89.2471, 88.70678, 93.10535, 92.88064}},
    {config::AdamConfig{.weight_decay = 0.1}, {96.60001, 97.59987, 97.7, 98.69994}},
    {config::AdamWConfig{.weight_decay = 0.1}, {93.57185, 93.74677, 95.38631, 95.76289}},
    {config::RmspropConfig{.alpha = 0.9, .momentum = 0.9, .weight_decay = 0.1},
     {94.75961, 95.74761, 96.5167, 97.51048}},
    {config::AdagradConfig{.weight_decay = 0.1}, {96.72171, 97.71948, 97.77164, 98.77029}},
    {config::LionConfig{.weight_decay = 0.1}, {93.57185, 93.74437, 95.38631, 95.7626}},
    {config::MuonConfig{.weight_decay = 0.1}, {93.27065, 94.01177, 95.38631, 95.76289}, 1e-3},
};
const std::vector<std::vector<std::string>> kReachedOfSteps{
    {"a1", "bb"}, {"a1"}, {"bb"}, {"a1", "bb"}, {"a1"}};

// With `accumulates`, in a backward pass for each parameter.
void check_without_gradient(const WithoutGradient& row, bool accumulates) {
  const Parameters parameters({"a1", "bb"});
  const auto optimizer = Optimizer::create({.method = row.method}, kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  if (!accumulates) (*optimizer)->take_gradients();
  for (size_t step = 0; step < kReachedOfSteps.size(); ++step) {
    (*optimizer)->zero_grad();
    at::Tensor loss = at::zeros({});
    for (const std::string& name : kReachedOfSteps[step]) {
      const at::Tensor part =
          (parameters.at(name) * parameters.gradient(name, static_cast<int>(step))).sum();
      if (accumulates) {
        part.backward();
        (*optimizer)->note_reached();
      } else {
        loss = loss + part;
      }
    }
    if (!accumulates) {
      loss.backward();
      (*optimizer)->note_reached();
    }
    (*optimizer)->step(0.1);
  }
  std::vector<double> found;
  for (const std::string name : {"a1", "bb"})
    for (const int64_t element : {0, 5})
      found.push_back(parameters.at(name).detach().flatten()[element].item<double>());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], row.expected[i], row.tolerance) << i;
}

TEST(OptimizerWithoutGradientTest, LeavesParametersAsTorchOptim) {
  for (size_t i = 0; i < kWithoutGradient.size(); ++i) {
    SCOPED_TRACE(i);
    check_without_gradient(kWithoutGradient[i], /*accumulates=*/false);
    check_without_gradient(kWithoutGradient[i], /*accumulates=*/true);
  }
}

// A gradient of 0 is one.
TEST(OptimizerWithoutGradientTest, DecaysParameterWithGradientOfZero) {
  for (const bool accumulates : {false, true}) {
    const Parameters parameters({"a1", "bb"});
    const auto optimizer =
        Optimizer::create({.method = config::AdamWConfig{}}, kUnclipped, parameters.all);
    ASSERT_TRUE(optimizer.ok());
    if (!accumulates) (*optimizer)->take_gradients();
    const at::Tensor before = parameters.at("a1").detach().clone();
    const at::Tensor other = parameters.at("bb").detach().clone();
    (parameters.at("a1") * 0).sum().backward();
    (*optimizer)->note_reached();
    (*optimizer)->step(0.1);
    EXPECT_TRUE(at::allclose(parameters.at("a1"), before * 0.99));
    EXPECT_TRUE(at::equal(parameters.at("bb"), other));
  }
}

// Graphs are replayed without a note. Of these, all that were ever noted are known to be reached.
TEST(OptimizerWithoutGradientTest, AssumesParametersOfEarlierPassesForReplays) {
  const Parameters parameters({"a1", "bb"});
  const auto optimizer =
      Optimizer::create({.method = config::AdamWConfig{}}, kUnclipped, parameters.all);
  ASSERT_TRUE(optimizer.ok());
  parameters.at("a1").sum().backward();
  (*optimizer)->note_reached();
  (*optimizer)->step(0.1);
  (*optimizer)->zero_grad();
  EXPECT_TRUE((*optimizer)->reached().empty());
  (*optimizer)->assume_reached();
  EXPECT_EQ((*optimizer)->reached(), (Optimizer::Reached{1, 0}));
}

}  // namespace
}  // namespace stoker::train
