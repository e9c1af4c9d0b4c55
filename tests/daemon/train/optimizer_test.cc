// Groups of parameters. What the optimizers compute is compared with PyTorch in tests/twin.
#include "daemon/train/optimizer.h"

#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

using config::OptimizerConfig;
using config::OptimizerKind;
using ::testing::HasSubstr;

struct Parameters {
  NamedTensors all;

  explicit Parameters(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto seed = static_cast<double>(name.front());
      at::Tensor tensor = at::linspace(seed, seed + 1, 6).to(at::kFloat);
      if (!name.ends_with('b')) tensor = tensor.view({2, 3});  // a matrix, for those who ask
      all.emplace_back(name, tensor.requires_grad_());
    }
  }
  // A gradient that depends on name and step alone.
  void set_gradients(int step) const {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : all)
      tensor.mutable_grad().copy_(
          at::linspace(-1.0, 0.1 * step + static_cast<double>(name.back()) / 100, 6)
              .view(tensor.sizes()));
  }
  const at::Tensor& at(const std::string& name) const {
    for (const auto& [each, tensor] : all)
      if (each == name) return tensor;
    ADD_FAILURE() << name;
    return all.front().second;
  }
};

void train(const OptimizerConfig& config, const Parameters& parameters, double lr) {
  const auto optimizer = Optimizer::create(config, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  for (int step = 0; step < 5; ++step) {
    parameters.set_gradients(step);
    (*optimizer)->step(lr);
  }
}

class Groups : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  OptimizerConfig config() const {
    return {.kind = GetParam(), .weight_decay = 0.1, .clip_norm = 0};
  }
};

// Each group moves as if an optimizer with its settings had its parameters alone.
TEST_P(Groups, AreAsOptimizersOfTheirOwn) {
  const Parameters together({"a.w", "a.b", "c.w", "d.w"});
  OptimizerConfig grouped = config();
  grouped.groups = {{.match = "a.*", .lr_scale = 0.25, .weight_decay = 0.0},
                    {.match = "[ad].w", .lr_scale = 3}};
  train(grouped, together, 0.01);
  const Parameters first({"a.w", "a.b"}), second({"d.w"}), rest({"c.w"});
  OptimizerConfig without_decay = config();
  without_decay.weight_decay = 0;
  train(without_decay, first, 0.01 * 0.25);
  train(config(), second, 0.01 * 3);
  train(config(), rest, 0.01);
  for (const Parameters* const alone : {&first, &second, &rest})
    for (const auto& [name, tensor] : alone->all)
      EXPECT_TRUE(at::equal(together.at(name), tensor)) << name;
}

TEST_P(Groups, OfTheSameSettingsChangeNoBit) {
  const Parameters one({"a", "b", "c"}), grouped({"a", "b", "c"});
  OptimizerConfig with_groups = config();
  with_groups.clip_norm = 0.5;  // over all groups together
  OptimizerConfig plain = with_groups;
  with_groups.groups = {{.match = "b"}, {.match = "a"}};
  train(plain, one, 0.02);
  train(with_groups, grouped, 0.02);
  for (const auto& [name, tensor] : one.all)
    EXPECT_TRUE(at::allclose(grouped.at(name), tensor, 0, 1e-6)) << name;
}

TEST_P(Groups, KeepTheNamesOfTheState) {
  const Parameters parameters({"a", "b", "c"});
  OptimizerConfig grouped = config();
  grouped.groups = {{.match = "b"}};
  const auto with = Optimizer::create(grouped, parameters.all);
  const auto without = Optimizer::create(config(), parameters.all);
  ASSERT_TRUE(with.ok() && without.ok());
  ASSERT_EQ((*with)->state().size(), (*without)->state().size());
  for (size_t i = 0; i < (*with)->state().size(); ++i)
    EXPECT_EQ((*with)->state()[i].first, (*without)->state()[i].first);
}

TEST_P(Groups, StayBitForBitWhereTheLossIsNotFinite) {
  const Parameters parameters({"a.w", "c.w"});
  auto settings = config();
  settings.groups = {{.match = "c.*", .lr_scale = 0.5}};
  const auto optimizer = Optimizer::create(settings, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  parameters.set_gradients(1);
  (*optimizer)->step_if_finite(0.1, at::scalar_tensor(1.0));
  std::vector<at::Tensor> before;
  for (const auto& [name, tensor] : parameters.all) before.push_back(tensor.detach().clone());
  for (const auto& [name, tensor] : (*optimizer)->state()) before.push_back(tensor.clone());
  parameters.set_gradients(2);
  {
    const at::NoGradGuard no_grad;
    parameters.at("a.w").mutable_grad().fill_(std::numeric_limits<float>::quiet_NaN());
  }
  (*optimizer)->step_if_finite(0.1, at::scalar_tensor(1.0));
  EXPECT_EQ((*optimizer)->skipped().item<float>(), 1.0F);
  size_t at = 0;
  for (const auto& [name, tensor] : parameters.all)
    EXPECT_TRUE(at::equal(tensor.detach(), before[at++])) << name;
  for (const auto& [name, tensor] : (*optimizer)->state())
    EXPECT_TRUE(at::equal(tensor, before[at++])) << name;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Groups,
                         ::testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                           OptimizerKind::kAdam, OptimizerKind::kAdamW,
                                           OptimizerKind::kRmsprop, OptimizerKind::kAdagrad,
                                           OptimizerKind::kLion, OptimizerKind::kMuon));

TEST(Muon, LeavesWhatIsNoHiddenLayersMatrixToAdamw) {
  const Parameters parameters({"tok.w", "a.w", "a.b", "c.w"});
  const auto optimizer = Optimizer::create(
      {.kind = OptimizerKind::kMuon, .groups = {{.match = "a.*"}}}, parameters.all);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  std::vector<std::pair<std::string, OptimizerKind>> found;
  for (const auto& group : (*optimizer)->groups())
    for (const at::Tensor& each : group.parameters)
      for (const auto& [name, tensor] : parameters.all)
        if (each.is_same(tensor)) found.emplace_back(name, group.kind);
  EXPECT_THAT(found, ::testing::ElementsAre(::testing::Pair("c.w", OptimizerKind::kMuon),
                                            ::testing::Pair("a.w", OptimizerKind::kMuon),
                                            ::testing::Pair("tok.w", OptimizerKind::kAdamW),
                                            ::testing::Pair("a.b", OptimizerKind::kAdamW)));
  std::vector<std::string> state;
  for (const auto& [name, tensor] : (*optimizer)->state()) state.push_back(name);
  EXPECT_THAT(state, ::testing::ElementsAre("exp_avg.tok.w", "exp_avg_sq.tok.w", "step.tok.w",
                                            "momentum_buffer.a.w", "exp_avg.a.b", "exp_avg_sq.a.b",
                                            "step.a.b", "momentum_buffer.c.w"));
}

// The step's singular values are near 1 whatever the gradient's are, times 0.2 of the longer side's
// root.
TEST(Muon, GoesAsFarInEachDirectionOfAMatrix) {
  const at::Tensor matrix = at::zeros({4, 6}).requires_grad_();
  const auto optimizer = Optimizer::create(
      {.kind = OptimizerKind::kMuon, .weight_decay = 0, .clip_norm = 0}, {{"a", matrix}});
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

TEST(Optimizer, TheFirstGroupThatFitsHasAParameter) {
  const Parameters parameters({"a.w", "a.b", "c.w"});
  const auto optimizer =
      Optimizer::create({.groups = {{.match = "*.b"}, {.match = "a.*"}}}, parameters.all);
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

TEST(Optimizer, AGroupWithoutParametersIsAMistake) {
  const Parameters parameters({"a.w", "a.b"});
  for (const std::vector<config::ParameterGroup>& groups :
       {std::vector<config::ParameterGroup>{{.match = "x.*"}},
        {{.match = "*"}, {.match = "a.w"}}}) {
    const auto optimizer = Optimizer::create({.groups = groups}, parameters.all);
    ASSERT_EQ(optimizer.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(optimizer.status().message(), HasSubstr("'" + groups.back().match + "'"));
  }
  EXPECT_TRUE(Optimizer::create({.groups = {{.match = "*"}}}, parameters.all).ok());
}

}  // namespace
}  // namespace stoker::train
