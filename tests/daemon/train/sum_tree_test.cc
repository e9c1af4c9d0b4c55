#include "daemon/train/sum_tree.h"

#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "daemon/train/train_step.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using Tensors = std::vector<at::Tensor>;

std::string bytes_of(const Tensors& tensors) {
  std::string bytes;
  for (const at::Tensor& tensor : tensors)
    bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  return bytes;
}

Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

// The sum of the ranks begin … end - 1, as a process group adds them: the first half plus the second
// half, recursively.
Tensors sum_of_ranks(const std::vector<Tensors>& ranks, size_t begin, size_t end) {
  Tensors sum = copies_of(ranks[begin]);
  if (end - begin == 1) return sum;
  const size_t middle = begin + (end - begin) / 2;
  sum = sum_of_ranks(ranks, begin, middle);
  at::_foreach_add_(sum, sum_of_ranks(ranks, middle, end));
  return sum;
}

class SumTreeTest : public testing::Test {
 protected:
  explicit SumTreeTest(size_t count = 16) {
    at::manual_seed(5);
    for (size_t i = 0; i < count; ++i)
      micro_batches_.push_back({at::randn({257}), at::randn({3, 5}) * 1000,
                                at::randn({}, at::TensorOptions().dtype(at::kDouble))});
  }

  // The sum of the micro-batches begin … end - 1.
  Tensors sum_by_tree(size_t begin, size_t end) const {
    Tensors values;
    for (const at::Tensor& each : micro_batches_[0]) values.push_back(at::zeros_like(each));
    SumTree tree(static_cast<int64_t>(end - begin));
    for (size_t i = begin; i < end; ++i) {
      at::_foreach_add_(values, micro_batches_[i]);
      tree.add(values, SumTree::level_of(static_cast<int64_t>(i - begin)), i + 1 == end);
    }
    return values;
  }
  Tensors sum_in_order(size_t begin, size_t end) const {
    Tensors values = copies_of(micro_batches_[begin]);
    for (size_t i = begin + 1; i < end; ++i) at::_foreach_add_(values, micro_batches_[i]);
    return values;
  }

  std::vector<Tensors> micro_batches_;
};

TEST_F(SumTreeTest, SumsOfAlignedPartsAddUpToSameBytes) {
  for (const size_t count : {2u, 8u, 16u}) {
    const std::string whole = bytes_of(sum_by_tree(0, count));
    for (size_t ranks = 2; ranks <= count; ranks *= 2) {
      std::vector<Tensors> sums;
      const size_t part = count / ranks;
      for (size_t rank = 0; rank < ranks; ++rank)
        sums.push_back(sum_by_tree(rank * part, (rank + 1) * part));
      EXPECT_TRUE(bytes_of(sum_of_ranks(sums, 0, ranks)) == whole)
          << count << " micro-batches on " << ranks << " ranks";
    }
  }
  EXPECT_FALSE(bytes_of(sum_in_order(0, 8)) == bytes_of(sum_by_tree(0, 8)))
      << "the values do not show the order of additions";
}

TEST_F(SumTreeTest, SumsAnyNumberOfMicroBatches) {
  for (size_t count = 1; count <= micro_batches_.size(); ++count) {
    const Tensors sum = sum_by_tree(0, count), expected = sum_in_order(0, count);
    for (size_t i = 0; i < sum.size(); ++i)
      EXPECT_TRUE(at::allclose(sum[i], expected[i], 1e-5, 1e-3)) << count;
  }
}

TEST_F(SumTreeTest, StoresOneCopyPerLevelOverAllSteps) {
  const uint64_t copy = bytes_of(micro_batches_[0]).size();
  for (const auto& [count, levels] :
       {std::pair(1, 0u), std::pair(2, 1u), std::pair(3, 2u), std::pair(4, 2u), std::pair(5, 3u),
        std::pair(8, 3u), std::pair(9, 4u)}) {
    SumTree tree(count);
    const Tensors values = copies_of(micro_batches_[0]);
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < count; ++i) tree.add(values, SumTree::level_of(i), i + 1 == count);
    }
    EXPECT_EQ(tree.bytes(), levels * copy) << count;
  }
}

// ---- in training ---------------------------------------------------------------------------------

config::Config ordered_config(uint64_t steps) {
  auto config = small_config(steps);
  config.optimizer.method = config::SgdConfig{.lr = 0.05};
  config.train.gradient_accumulation_steps = 8;
  config.run.rng = config::Rng::kPerTicket;
  config.distributed.reduction = config::Reduction::kOrdered;
  return config;
}

// Ranks are simulated one after the other: each computes its part of a step, with dropout.
TEST_F(TrainerTest, ComputesSameGradientsAndLossOnAnyNumberOfRanks) {
  const auto config = ordered_config(1);
  const int64_t count = config.train.gradient_accumulation_steps;
  Session run(config, root_);
  TrainingState& state = *run.state_;
  at::manual_seed(6);
  std::vector<task::Batch> batches;
  for (int64_t i = 0; i < count; ++i) batches.push_back({at::randn({4, 8}), at::randn({4, 2})});
  std::vector<std::string> sums;
  for (const int64_t ranks : {1, 2, 4, 8}) {
    std::vector<Tensors> of_ranks;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      TrainStep step(state.model(), state.task(), state.optimizer(), config.train);
      const int64_t begin = count * rank / ranks, end = count * (rank + 1) / ranks;
      for (int64_t i = begin; i < end; ++i) {
        state.seed_generators(config.run.seed, static_cast<uint64_t>(i));
        step.add(batches[static_cast<size_t>(i)]);
        step.add_to_tree(SumTree::level_of(i - begin), i + 1 == end);
      }
      of_ranks.push_back(copies_of(state.optimizer().gradients()));
      of_ranks.back().push_back(step.loss().clone());
      of_ranks.back().push_back(step.metric_sum().clone());
      step.drop();
    }
    sums.push_back(bytes_of(sum_of_ranks(of_ranks, 0, of_ranks.size())));
    EXPECT_TRUE(sums.back() == sums.front()) << ranks << " ranks";
  }
}

TEST_F(TrainerTest, TrainsAlikeWithOrderedSums) {
  auto config = ordered_config(12);
  Session ordered(config, root_);
  ASSERT_TRUE(ordered.train().ok());
  config.distributed.reduction.reset();
  Session plain(config, fresh());
  ASSERT_TRUE(plain.train().ok());
  ASSERT_EQ(ordered.rows_.size(), plain.rows_.size());
  for (size_t i = 0; i < plain.rows_.size(); ++i) {
    EXPECT_NEAR(ordered.rows_[i].loss, plain.rows_[i].loss, 1e-4);
    EXPECT_NEAR(ordered.rows_[i].grad_norm, plain.rows_[i].grad_norm, 1e-4);
    EXPECT_NEAR(ordered.rows_[i].metrics[0].second, plain.rows_[i].metrics[0].second, 1e-4);
  }
}

TEST_F(TrainerTest, ResumesBitForBitWithOrderedSumsAfterIncompleteStep) {
  const auto config = ordered_config(6);
  Session whole(config, root_);
  ASSERT_TRUE(whole.train().ok());
  const std::string root = fresh();
  for (const uint64_t end : {13u, 1000u}) {
    Session part(config, root);
    part.is_valid = [end](const feed::ReceivedBatch& batch) { return batch.ticket != end; };
    ASSERT_TRUE(part.train().ok());
    if (end > 13) {
      EXPECT_EQ(part.model_sha256(), whole.model_sha256());
      EXPECT_EQ(part.rows_.back().loss, whole.rows_.back().loss);
    }
  }
}

}  // namespace
}  // namespace stoker::train
