// DeviceSums of ranks that are threads, with collectives that copy between their tensors in host memory.
#include "daemon/group/device_sums.h"

#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/daemon/group/group_values.h"

namespace stoker::group {
namespace {

// What all ranks have brought to their current collective.
struct Meeting {
  explicit Meeting(int size)
      : world_size(size), tensors(static_cast<size_t>(size)), barrier(size) {}
  const int world_size;
  std::vector<at::Tensor> tensors;  // by rank
  std::barrier<> barrier;
};

class FakeCollectives final : public DeviceCollectives {
 public:
  FakeCollectives(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  void start_all_reduce(const at::Tensor& tensor) override {
    started_.push_back([this, tensor] { exchange(tensor, [&] { tensor.copy_(sum()); }); });
  }
  void start_reduce(const at::Tensor& tensor, int root) override {
    started_.push_back([this, tensor, root] {
      exchange(tensor, [&] {
        if (rank_ == root) tensor.copy_(sum());
      });
    });
  }
  void finish_sums() override {
    for (const auto& each : started_) each();
    started_.clear();
  }
  void broadcast(const at::Tensor& tensor, int root) override {
    exchange(tensor, [&] { tensor.copy_(brought(root)); });
  }
  void all_to_all(const at::Tensor& to, const at::Tensor& from) override {
    ASSERT_EQ(to.numel(), from.numel());
    ASSERT_EQ(from.numel() % meeting_.world_size, 0);
    const int64_t size = from.numel() / meeting_.world_size;
    exchange(from, [&] {
      for (int rank = 0; rank < meeting_.world_size; ++rank)
        to.narrow(0, size * rank, size).copy_(brought(rank).narrow(0, size * rank_, size));
    });
  }
  void all_gather(const at::Tensor& to, const at::Tensor& from) override {
    ASSERT_EQ(to.numel(), from.numel() * meeting_.world_size);
    exchange(from, [&] {
      for (int rank = 0; rank < meeting_.world_size; ++rank)
        to.narrow(0, from.numel() * rank, from.numel()).copy_(brought(rank));
    });
  }
  bool is_complete() override { return started_.empty(); }
  void abort() noexcept override {}

 private:
  const at::Tensor& brought(int rank) const { return meeting_.tensors[static_cast<size_t>(rank)]; }
  at::Tensor sum() const { return at::stack(meeting_.tensors).sum(0); }
  void exchange(const at::Tensor& own, const std::function<void()>& collect) {
    meeting_.tensors[static_cast<size_t>(rank_)] = own.clone();
    meeting_.barrier.arrive_and_wait();
    collect();
    meeting_.barrier.arrive_and_wait();
  }

  Meeting& meeting_;
  const int rank_;
  std::vector<std::function<void()>> started_;
};

void on_all_ranks(int world_size, const std::function<void(DeviceSums&, int rank)>& run) {
  Meeting meeting(world_size);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    ranks.emplace_back([&, rank] {
      DeviceSums sums(std::make_unique<FakeCollectives>(meeting, rank), world_size);
      run(sums, rank);
    });
}

at::Tensor values_of(int rank, size_t size) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(size)}, at::kFloat);
  for (size_t i = 0; i < size; ++i) tensor.mutable_data_ptr<float>()[i] = test::value_of(rank, i);
  return tensor;
}

at::Tensor expected_sum(int world_size, size_t size) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(size)}, at::kFloat);
  for (size_t i = 0; i < size; ++i)
    tensor.mutable_data_ptr<float>()[i] = test::sum_of(0, world_size, i);
  return tensor;
}

class DeviceSumsTest : public testing::TestWithParam<int> {};

// Also of sizes that the ranks cannot divide, and of fewer elements than ranks.
TEST_P(DeviceSumsTest, AddsInTreeOfHostMemory) {
  on_all_ranks(GetParam(), [](DeviceSums& sums, int rank) {
    for (int repetition = 0; repetition < 2; ++repetition) {
      std::vector<at::Tensor> tensors;
      for (const size_t size : test::kSumSizes) tensors.push_back(values_of(rank, size));
      tensors.push_back(values_of(rank, 24).view({2, 3, 4}));
      tensors.push_back(at::full({5}, 0.1 * (rank + 1), at::kDouble));
      sums.all_reduce_ordered(tensors);
      for (size_t i = 0; i < std::size(test::kSumSizes); ++i)
        EXPECT_TRUE(at::equal(tensors[i], expected_sum(GetParam(), test::kSumSizes[i])));
      EXPECT_TRUE(at::equal(tensors[5].view({-1}), expected_sum(GetParam(), 24)));
      EXPECT_NEAR(tensors[6].sum().item<double>(), 0.25 * GetParam() * (GetParam() + 1), 1e-12);
    }
  });
}

TEST_P(DeviceSumsTest, GathersPartsOfDifferentSizes) {
  const auto ends = test::part_ends(GetParam());
  on_all_ranks(GetParam(), [&ends](DeviceSums& sums, int rank) {
    const at::Tensor tensor = values_of(rank, 1000);
    sums.all_gather(tensor, ends);
    int64_t begin = 0;
    for (int of_rank = 0; of_rank < GetParam(); ++of_rank) {
      const int64_t size = ends[static_cast<size_t>(of_rank)] - begin;
      EXPECT_TRUE(at::equal(tensor.narrow(0, begin, size),
                            values_of(of_rank, 1000).narrow(0, begin, size)));
      begin += size;
    }
  });
}

TEST_P(DeviceSumsTest, ScattersSumsToTheirRanks) {
  const auto ends = test::part_ends(GetParam());
  on_all_ranks(GetParam(), [&ends](DeviceSums& sums, int rank) {
    const at::Tensor tensor = values_of(rank, 1000), other = values_of(rank, 10);
    sums.start_reduce_scatter(tensor, ends);
    sums.start_all_reduce(other);
    EXPECT_FALSE(sums.is_complete());
    sums.finish_sums();
    EXPECT_TRUE(sums.is_complete());
    const int64_t begin = rank == 0 ? 0 : ends[static_cast<size_t>(rank) - 1];
    at::Tensor expected = values_of(rank, 1000);
    const int64_t size = ends[static_cast<size_t>(rank)] - begin;
    expected.narrow(0, begin, size).copy_(expected_sum(GetParam(), 1000).narrow(0, begin, size));
    EXPECT_TRUE(at::allclose(tensor, expected, 1e-4, 1e-2));
    EXPECT_TRUE(at::allclose(other, expected_sum(GetParam(), 10), 1e-4, 1e-2));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeviceSumsTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace stoker::group
