// Runs the kernels with a thread of the host for each thread of a device, all blocks at the same time, and
// compares with the loop over the threads that the other tests use (HostBlock). Under ThreadSanitizer,
// which reports two threads that use the same memory without a barrier between them, as compute-sanitizer's
// racecheck does on a device, and also two blocks.
#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/cuda/kernels/adamw_kernel.h"
#include "daemon/cuda/kernels/cross_entropy_kernel.h"
#include "daemon/cuda/kernels/elementwise_kernel.h"
#include "daemon/cuda/kernels/gelu_kernel.h"
#include "daemon/cuda/kernels/norm_kernel.h"

namespace stoker::cuda {
namespace {

// What the threads of a block share.
struct BlockMemory {
  explicit BlockMemory(int size) : barrier(size) {}

  std::barrier<> barrier;
  alignas(16) std::array<std::byte, sizeof(ExpSum) * kMaxBlockSize> values;
};

// DeviceBlock on the host: every thread runs the whole kernel.
class ThreadBlock {
 public:
  ThreadBlock(int64_t index, int64_t num_blocks, int size, int thread, BlockMemory& memory)
      : index_(index), num_blocks_(num_blocks), size_(size), thread_(thread), memory_(memory) {}

  int64_t index() const { return index_; }
  int64_t num_blocks() const { return num_blocks_; }
  int size() const { return size_; }

  template <typename Function>
  void for_each_thread(Function&& function) const {
    function(thread_);
    memory_.barrier.arrive_and_wait();
  }

  template <typename Function>
  auto reduce(Function&& function) const {
    using Value = decltype(function(0));
    auto* const values = reinterpret_cast<Value*>(memory_.values.data());
    const Value value = function(thread_);
    memory_.barrier.arrive_and_wait();  // the values of the previous reduction are read
    values[thread_] = value;
    memory_.barrier.arrive_and_wait();
    // Combined as on the device, by the loop of HostBlock.
    return HostBlock(index_, num_blocks_, size_).reduce([&](int thread) { return values[thread]; });
  }

 private:
  const int64_t index_, num_blocks_;
  const int size_, thread_;
  BlockMemory& memory_;
};

template <typename Kernel>
void run_threads(int64_t count, int size, Kernel&& kernel) {
  std::vector<std::unique_ptr<BlockMemory>> memory;
  for (int64_t block = 0; block < count; ++block)
    memory.push_back(std::make_unique<BlockMemory>(size));
  std::vector<std::jthread> threads;
  for (int64_t block = 0; block < count; ++block)
    for (int thread = 0; thread < size; ++thread)
      threads.emplace_back([&, block, thread] {
        kernel(ThreadBlock(block, count, size, thread, *memory[static_cast<size_t>(block)]));
      });
}

template <typename Kernel>
void run_loop(int64_t count, int size, Kernel&& kernel) {
  for (int64_t block = 0; block < count; ++block) kernel(HostBlock(block, count, size));
}

// The memory of a kernel. The heap's alignment is 16 bytes, as kernels need it.
struct Arrays {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<Bf16>> halves;
};

template <typename T>
bool has_same_bytes(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
  return std::ranges::equal(a, b, [](const std::vector<T>& x, const std::vector<T>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
  });
}

bool is_same(const Arrays& a, const Arrays& b) {
  return has_same_bytes(a.floats, b.floats) && has_same_bytes(a.halves, b.halves);
}

// Calls `launch(arrays, run)` for both ways to run a kernel, with the same arrays.
template <typename Launch>
void expect_same(const Arrays& arrays, Launch&& launch) {
  Arrays looped = arrays, threaded = arrays;
  launch(looped, [](int64_t count, int size, auto&& kernel) { run_loop(count, size, kernel); });
  EXPECT_FALSE(is_same(looped, arrays)) << "the kernel writes nothing";
  launch(threaded,
         [](int64_t count, int size, auto&& kernel) { run_threads(count, size, kernel); });
  EXPECT_TRUE(is_same(looped, threaded));
}

std::vector<float> random_floats(int64_t size) {
  static std::mt19937 engine(1);
  std::uniform_real_distribution<float> distribution(0.1F, 2.0F);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = distribution(engine);
  return values;
}

std::vector<Bf16> random_halves(int64_t size) {
  const std::vector<float> floats = random_floats(size);
  std::vector<Bf16> values(floats.size());
  for (size_t i = 0; i < values.size(); ++i) from_float(values[i], floats[i]);
  return values;
}

constexpr int64_t kRows = 5;

TEST(BlockThreadsTest, Adamw) {
  // The second tensor begins in the middle of a launch; one is not aligned.
  constexpr std::array<int64_t, 2> kSizes{AdamwLaunch::kChunk + 77, 100};
  Arrays arrays;
  for (const int64_t size : kSizes) {
    for (int i = 0; i < 4; ++i) arrays.floats.push_back(random_floats(size + 1));
    arrays.halves.push_back(random_halves(size + 1));
  }
  arrays.floats.push_back({3.0F});
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    std::array<AdamwTensor, 2> tensors;
    for (size_t i = 0; i < tensors.size(); ++i)
      tensors[i] = {.parameter = of.floats[4 * i].data() + i,
                    .gradient = of.floats[4 * i + 1].data() + i,
                    .exp_avg = of.floats[4 * i + 2].data() + i,
                    .exp_avg_sq = of.floats[4 * i + 3].data() + i,
                    .step = of.floats.back().data(),
                    .maybe_copy = of.halves[i].data() + i,
                    .size = kSizes[i]};
    launch_adamw(tensors.data(), tensors.size(),
                 {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .lr = 1e-3},
                 [&](const AdamwLaunch& launch, int64_t blocks) {
                   run(blocks, AdamwLaunch::kBlockSize,
                       [&](const auto& block) { adamw_kernel(block, launch); });
                 });
  });
}

TEST(BlockThreadsTest, CrossEntropy) {
  constexpr int64_t kClasses = 1003, kStride = 1008, kIgnored = -100;
  const std::array<int64_t, kRows> labels{7, kIgnored, kClasses - 1, kClasses, 0};
  Arrays arrays{.floats = {std::vector<float>(kRows), {0.5F}},
                .halves = {random_halves(kRows * kStride)}};
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    const CrossEntropyBatch batch{.logits = of.halves[0].data(),
                                  .labels = labels.data(),
                                  .losses = of.floats[0].data(),
                                  .gradient_scale = of.floats[1].data(),
                                  .rows = kRows,
                                  .classes = kClasses,
                                  .row_stride = kStride,
                                  .ignored_label = kIgnored};
    run(kRows, kCrossEntropyBlockSize,
        [&](const auto& block) { cross_entropy_kernel(block, batch); });
  });
}

TEST(BlockThreadsTest, Gelu) {
  // Two blocks of columns, of which the last step is shorter than a vector, and of rows.
  constexpr int64_t kWidth = kGeluColumns + 11, kParts = 2, kSize = kRows * kWidth;
  const int64_t rows = kGeluRowsOfBlock + 1;
  const Arrays arrays{.floats = {random_floats(kWidth), std::vector<float>(kParts * kWidth)},
                      .halves = {random_halves(rows * kWidth), std::vector<Bf16>(rows * kWidth),
                                 random_halves(kSize), std::vector<Bf16>(kSize)}};
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    const GeluRows values{.x = of.halves[0].data(),
                          .bias = of.floats[0].data(),
                          .output = of.halves[1].data(),
                          .rows = rows,
                          .width = kWidth,
                          .is_tanh = false};
    const GeluGradients gradients{.x = of.halves[0].data(),
                                  .bias = of.floats[0].data(),
                                  .output_gradient = of.halves[2].data(),
                                  .x_gradient = of.halves[3].data(),
                                  .maybe_bias_gradients = of.floats[1].data(),
                                  .rows = kRows,
                                  .width = kWidth,
                                  .parts = kParts,
                                  .is_tanh = true};
    run(gelu_blocks(values), kGeluBlockSize,
        [&](const auto& block) { gelu_kernel(block, values); });
    run(gelu_gradient_blocks(gradients), kGeluBlockSize,
        [&](const auto& block) { gelu_gradient_kernel(block, gradients); });
  });
}

// Widths of one warp and of several; the last one is not a multiple of a vector.
class BlockThreadsOfNormTest : public testing::TestWithParam<int64_t> {};

TEST_P(BlockThreadsOfNormTest, Forward) {
  const int64_t width = GetParam();
  const Arrays arrays{.floats = {random_floats(kRows * width), std::vector<float>(kRows * width),
                                 random_floats(width), random_floats(width),
                                 std::vector<float>(kRows), std::vector<float>(kRows)},
                      .halves = {random_halves(kRows * width), std::vector<Bf16>(kRows * width)}};
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    const NormRows rows{.x = of.floats[0].data(),
                        .maybe_delta = of.halves[0].data(),
                        .maybe_sum = of.floats[1].data(),
                        .weight = of.floats[2].data(),
                        .maybe_bias = of.floats[3].data(),
                        .output = of.halves[1].data(),
                        .maybe_mean = of.floats[4].data(),
                        .rstd = of.floats[5].data(),
                        .rows = kRows,
                        .width = width,
                        .eps = 1e-5};
    run(kRows, norm_block_size(width), [&](const auto& block) { norm_kernel(block, rows); });
  });
}

TEST_P(BlockThreadsOfNormTest, Backward) {
  const int64_t width = GetParam(), parts = 2;
  const Arrays arrays{
      .floats = {random_floats(kRows * width), random_floats(kRows), random_floats(kRows),
                 random_floats(width), random_floats(kRows * width),
                 std::vector<float>(kRows * width), std::vector<float>(parts * width),
                 std::vector<float>(parts * width)},
      .halves = {random_halves(kRows * width), std::vector<Bf16>(kRows * width)}};
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    const NormGradients gradients{.sum = of.floats[0].data(),
                                  .maybe_mean = of.floats[1].data(),
                                  .rstd = of.floats[2].data(),
                                  .weight = of.floats[3].data(),
                                  .output_gradient = of.halves[0].data(),
                                  .maybe_sum_gradient = of.floats[4].data(),
                                  .x_gradient = of.floats[5].data(),
                                  .maybe_delta_gradient = of.halves[1].data(),
                                  .weight_gradients = of.floats[6].data(),
                                  .maybe_bias_gradients = of.floats[7].data(),
                                  .rows = kRows,
                                  .width = width,
                                  .parts = parts};
    run(kRows, norm_block_size(width),
        [&](const auto& block) { norm_gradient_kernel(block, gradients); });
    run(norm_weight_blocks(gradients), kNormWeightBlockSize,
        [&](const auto& block) { norm_weight_gradient_kernel(block, gradients); });
  });
}
INSTANTIATE_TEST_SUITE_P(Widths, BlockThreadsOfNormTest, testing::Values(64, 768, 1001));

TEST(BlockThreadsTest, Swiglu) {
  constexpr int64_t kSize = 5 * 8 * kElementwiseBlockSize / 2 + 3;
  Arrays arrays;
  for (int i = 0; i < 6; ++i) arrays.halves.push_back(random_halves(kSize));
  const int64_t blocks = elementwise_blocks(steps_of(kSize));
  expect_same(arrays, [&](Arrays& of, auto&& run) {
    const SwigluValues values{of.halves[0].data(), of.halves[1].data(), of.halves[2].data(), kSize};
    const SwigluGradients gradients{of.halves[0].data(), of.halves[1].data(), of.halves[3].data(),
                                    of.halves[4].data(), of.halves[5].data(), kSize};
    run(blocks, kElementwiseBlockSize, [&](const auto& block) { swiglu_kernel(block, values); });
    run(blocks, kElementwiseBlockSize,
        [&](const auto& block) { swiglu_gradient_kernel(block, gradients); });
  });
}

// Also with a last step of a head that is shorter than a vector.
TEST(BlockThreadsTest, RotaryEmbeddings) {
  constexpr int64_t kBatch = 2, kHeads = 3, kTime = 10;
  for (const int64_t half : {8, 12}) {
    const int64_t head = 2 * half;
    const Arrays arrays{.floats = {random_floats(kTime * half), random_floats(kTime * half)},
                        .halves = {random_halves(kBatch * kHeads * kTime * head),
                                   random_halves(kBatch * kHeads * kTime * head)}};
    expect_same(arrays, [&](Arrays& of, auto&& run) {
      const RopeRotation rotation{
          .x = of.halves[0].data(),
          .output = of.halves[1].data(),
          .cos = of.floats[0].data(),
          .sin = of.floats[1].data(),
          .batch = kBatch,
          .heads = kHeads,
          .time = kTime,
          .half = half,
          .x_strides = {kTime * kHeads * head, head, kHeads * head},  // as split_heads gives them
          .output_strides = {kHeads * kTime * head, kTime * head, head},
          .is_inverse = false};
      const int64_t steps = rope_steps(rotation);
      run(elementwise_blocks(steps), kElementwiseBlockSize,
          [&](const auto& block) { rope_kernel(block, rotation, steps); });
    });
  }
}

}  // namespace
}  // namespace stoker::cuda
