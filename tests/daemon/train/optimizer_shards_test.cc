#include "daemon/train/optimizer_shards.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "tests/daemon/train/thread_group.h"

namespace stoker::train {
namespace {

using testing::ElementsAre;

constexpr ShardedParameter whole(int64_t elements) { return {elements, 4, false}; }
constexpr ShardedParameter any(int64_t elements) { return {elements, 4, true}; }
constexpr ShardCut cut(size_t parameter, int64_t element = 0) { return {parameter, element}; }

std::vector<ShardCut> shards(const std::vector<ShardedParameter>& parameters, int count) {
  return cut_into_shards(parameters, count);
}

TEST(OptimizerShardsTest, CutsParametersAtVectorBorders) {
  EXPECT_THAT(shards({any(1000)}, 1), ElementsAre(cut(1)));
  EXPECT_THAT(shards({any(1000)}, 2), ElementsAre(cut(0, 448), cut(1)));
  EXPECT_THAT(shards({any(640), any(640)}, 4),
              ElementsAre(cut(0, 320), cut(1), cut(1, 320), cut(2)));
  EXPECT_THAT(shards({{1000, 2, true}}, 2), ElementsAre(cut(0, 384), cut(1)));
}

TEST(OptimizerShardsTest, CutsAtNearestEndOfParameterThatMustStayComplete) {
  EXPECT_THAT(shards({whole(600), any(400)}, 2), ElementsAre(cut(1), cut(2)));
  EXPECT_THAT(shards({whole(300), whole(700)}, 2), ElementsAre(cut(1), cut(2)));
  EXPECT_THAT(shards({whole(1000)}, 3), ElementsAre(cut(0), cut(1), cut(1)));
}

TEST(OptimizerShardsTest, LeavesShardsEmptyIfThereAreTooFewElements) {
  EXPECT_THAT(shards({any(10)}, 3), ElementsAre(cut(0), cut(0), cut(1)));
  EXPECT_THAT(shards({any(0)}, 2), ElementsAre(cut(1), cut(1)));
}

// Written by one number of ranks and read by another one: both have each element, once. So what a rank reads is in the
// ranges that the others have written, without a gap or an overlap.
TEST(OptimizerShardsTest, DividesEachElementOfRandomParametersOnce) {
  std::mt19937_64 random(18);
  const auto up_to = [&random](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int repetition = 0; repetition < 100'000; ++repetition) {
    SCOPED_TRACE(repetition);
    std::vector<ShardedParameter> parameters(static_cast<size_t>(up_to(8)));
    for (ShardedParameter& each : parameters)
      each = {.elements = up_to(up_to(3) == 0 ? 2 : 3000),
              .element_bytes = int64_t{1} << up_to(3),
              .can_be_cut = up_to(4) > 0};
    const int count = static_cast<int>(1 + up_to(15));
    const auto cuts = cut_into_shards(parameters, count);
    ASSERT_EQ(cuts.size(), static_cast<size_t>(count));
    std::vector<int64_t> ends(parameters.size());  // of what the shards before have
    std::vector<int> shards(parameters.size());    // that have something
    for (size_t shard = 0; shard < cuts.size(); ++shard)
      for (size_t at = 0; at < parameters.size(); ++at) {
        const auto range = shard_range(parameters, cuts, shard, at);
        if (!range) continue;
        ASSERT_EQ(range->begin, ends[at]);
        ends[at] = range->end;
        ++shards[at];
        if (range->end < parameters[at].elements) {
          ASSERT_EQ(range->end * parameters[at].element_bytes % 256, 0);
        }
      }
    for (size_t at = 0; at < parameters.size(); ++at) {
      ASSERT_EQ(ends[at], parameters[at].elements);
      ASSERT_GE(shards[at], 1);
      if (!parameters[at].can_be_cut || parameters[at].elements == 0) {
        ASSERT_EQ(shards[at], 1);
      }
    }
  }
}

// ---- Updates

// Matrices and vectors of sizes that are no multiple of anything, one in another memory format, an
// empty one and a scalar. The same values on each rank.
NamedTensors make_parameters() {
  at::manual_seed(3);
  const auto make = [](std::string name, at::IntArrayRef sizes) {
    return std::pair(std::move(name), at::rand(sizes) - 0.5);
  };
  NamedTensors all{make("a.weight", {37, 61}), make("a.bias", {61}),
                   make("empty", {0}),         make("c.weight", {8, 5, 3, 3}),
                   make("scalar", {}),         make("big.weight", {150'007}),
                   make("b.weight", {61, 40}), make("b.bias", {40})};
  for (auto& [name, tensor] : all) {
    if (tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    tensor.requires_grad_();
  }
  return all;
}

// What reads gradients before the update must see the sums.
TEST(OptimizerShardsTest, ClampsValuesOfShardInUpdateOnly) {
  config::TrainConfig train;
  train.max_grad_norm = std::nullopt;
  train.max_grad_value = 0.5;
  const NamedTensors parameters{{"weight", at::rand({1000}).requires_grad_()}};
  config::OptimizerConfig config;
  config.method = config::SgdConfig{};
  const auto optimizer =
      *Optimizer::create(config, train, parameters, {}, {.count = 2, .sums_own_gradients = true});
  const at::Tensor gradient = parameters.front().second.mutable_grad();
  gradient.fill_(3);
  const auto squares = optimizer->squares_to_sum();
  EXPECT_EQ(gradient.sum().item<double>(), 3000);
  ASSERT_EQ(squares.size(), 2u);
  EXPECT_NEAR(squares.front().item<double>(), 448 * 9, 1e-2);  // elements of this shard
  EXPECT_NEAR(squares.back().item<double>(), 448 * 0.25, 1e-2);
  EXPECT_NEAR(optimizer->step(0.01).item<double>(), 3 * std::sqrt(448), 1e-3);
  EXPECT_EQ(gradient.sum().item<double>(), 448 * 0.5 + 552 * 3);
}

struct Trained {
  NamedTensors parameters;
  std::map<std::string, std::string> state;  // bytes
  std::vector<double> norms;
  uint64_t state_bytes = 0;
};

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

struct Case {
  const char* name;
  config::OptimizerVariant method;
};

class ShardedUpdateTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kSteps = 4;

  static void train(Optimizer& optimizer, const NamedTensors& parameters,
                    group::ProcessGroup* maybe_group, Trained& result) {
    for (int step = 0; step < kSteps; ++step) {
      // Frozen in the first steps.
      optimizer.set_frozen(step < 2);
      {
        const at::NoGradGuard no_grad;
        for (const auto& [name, tensor] : parameters)
          if (tensor.requires_grad())
            tensor.mutable_grad().copy_((tensor * 0.7 + 0.01 * step) * (tensor + 0.1));
      }
      result.norms.push_back(optimizer.step(0.01).item<double>());
      if (maybe_group == nullptr) {
        optimizer.zero_grad();
        continue;
      }
      ASSERT_TRUE(optimizer
                      .gather_parameters([&](const at::Tensor& flat, const auto& ends) {
                        return maybe_group->all_gather(flat, ends, {});
                      })
                      .ok());
    }
    result.parameters = parameters;
    for (const auto& [name, tensor] : optimizer.state()) {
      result.state[name] += bytes_of(tensor);
      result.state_bytes += tensor.nbytes();
    }
  }
  Trained train_shard(const NamedTensors& parameters, const Optimizer::Shard& shard,
                      group::ProcessGroup* maybe_group) const {
    config::OptimizerConfig config{.method = GetParam().method};
    config.param_groups = {{.params = "*bias", .lr_scale = 2, .weight_decay = 0}};
    const config::TrainConfig options{.max_grad_norm = 0.5};
    auto optimizer = Optimizer::create(config, options, parameters, {"b.weight", "scalar"}, shard);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    Trained result;
    if (optimizer.ok()) train(**optimizer, parameters, maybe_group, result);
    return result;
  }
  void expect_same_bytes_as_one_process(int num_threads) const;
};

// `num_threads`: of each rank, and of the one process.
void ShardedUpdateTest::expect_same_bytes_as_one_process(int num_threads) const {
  at::set_num_threads(num_threads);
  const config::OptimizerName method = config::OptimizerConfig{.method = GetParam().method}.name();
  const Trained alone = train_shard(make_parameters(), {}, nullptr);
  for (const int world_size : {2, 3, 4}) {
    ThreadGroup group(world_size);
    std::vector<NamedTensors> made;
    for (int rank = 0; rank < world_size; ++rank) made.push_back(make_parameters());
    std::vector<Trained> ranks(static_cast<size_t>(world_size));
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < world_size; ++rank)
        threads.emplace_back([&, rank] {
          at::set_num_threads(num_threads);
          const auto at = static_cast<size_t>(rank);
          ranks[at] = train_shard(made[at], {rank, world_size}, &group.rank(rank));
        });
    }
    std::map<std::string, std::string> state;
    uint64_t most = 0;
    for (const Trained& rank : ranks) {
      EXPECT_EQ(rank.norms, alone.norms);
      ASSERT_EQ(rank.parameters.size(), alone.parameters.size());
      for (size_t i = 0; i < alone.parameters.size(); ++i)
        EXPECT_TRUE(bytes_of(rank.parameters[i].second) == bytes_of(alone.parameters[i].second))
            << world_size << " ranks: " << alone.parameters[i].first;
      for (const auto& [name, bytes] : rank.state)
        if (name.starts_with("step.") || name.starts_with("mu_product."))
          state[name] = bytes;
        else
          state[name] += bytes;
      most = std::max(most, rank.state_bytes);
    }
    EXPECT_TRUE(state == alone.state) << world_size << " ranks";
    // The large vector is complete on one rank.
    const bool can_be_divided =
        method == config::OptimizerName::kMuon || !config::updates_whole_parameters(method);
    if (can_be_divided) {
      EXPECT_LE(most * static_cast<uint64_t>(world_size),
                alone.state_bytes + alone.state_bytes / 4 + 4096);
    }
  }
  at::set_num_threads(1);
}

TEST_P(ShardedUpdateTest, ComputesSameBytesAsOneProcess) { expect_same_bytes_as_one_process(1); }

// LibTorch divides large tensors among its threads, at other elements in a shard than in the complete
// parameter.
TEST_P(ShardedUpdateTest, ComputesSameBytesAsOneProcessWithSeveralThreads) {
  for (const int num_threads : {2, 3}) expect_same_bytes_as_one_process(num_threads);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, ShardedUpdateTest,
    testing::Values(Case{"Sgd", config::SgdConfig{.momentum = 0}},
                    Case{"Momentum", config::SgdConfig{.momentum = 0.9, .nesterov = true}},
                    Case{"Adam", config::AdamConfig{}}, Case{"AdamW", config::AdamWConfig{}},
                    Case{"Rmsprop", config::RmspropConfig{.momentum = 0.9}},
                    Case{"Adagrad", config::AdagradConfig{}}, Case{"Lion", config::LionConfig{}},
                    Case{"Muon", config::MuonConfig{}}, Case{"Nadam", config::NadamConfig{}},
                    Case{"Radam", config::RadamConfig{}}, Case{"Adamax", config::AdamaxConfig{}},
                    Case{"Adadelta", config::AdadeltaConfig{}},
                    Case{"Adafactor", config::AdafactorConfig{}},
                    Case{"Lamb", config::LambConfig{.weight_decay = 0.01}},
                    Case{"Lars", config::LarsConfig{.momentum = 0.9, .weight_decay = 0.01}}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace stoker::train
