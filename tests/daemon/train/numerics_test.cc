#include "daemon/train/numerics.h"

#include <stdlib.h>

#include <filesystem>
#include <thread>

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

// The fraction of a large product that is flushed to zero; all of it is denormal.
double flushed_part() {
  const at::Tensor smallest = at::full({1 << 20}, 1e-38, at::kFloat);
  return smallest.mul(0.01).eq(0).to(at::kDouble).mean().item<double>();
}

// Runs on a separate thread, as a trainer does, because the mode is per thread.
template <typename Work>
void on_a_thread(Work&& work) {
  std::thread(std::forward<Work>(work)).join();
}

TEST(NumericsTest, FlushesDenormalsInEveryComputeThread) {
  on_a_thread([] {
    if (!at::globalContext().setFlushDenormal(true)) GTEST_SKIP() << "no such mode here";
    ASSERT_TRUE(configure_numerics({}, {.flush_denormal = true, .num_threads = 3}).ok());
    EXPECT_EQ(flushed_part(), 1.0);
  });
  on_a_thread([] {
    ASSERT_TRUE(configure_numerics({}, {.num_threads = 3}).ok());
    EXPECT_EQ(flushed_part(), 0.0);
  });
}

int num_threads_of_process() {
  int count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

// Otherwise the first large operation would, when the system may permit fewer, and OpenMP then exits with code 1.
TEST(NumericsTest, StartsAllComputeThreads) {
  on_a_thread([] {
    ASSERT_TRUE(configure_numerics({}, {.num_threads = 5}).ok());
    const int before = num_threads_of_process();
    EXPECT_GE(before, 2 + 4) << "this thread, the main thread, and those of OpenMP";
    (void)at::full({1 << 20}, 1, at::kFloat).add(1);
    EXPECT_LE(num_threads_of_process(), before);
  });
}

TEST(NumericsTest, ConfiguresLibTorchAndCublasForDeterministicRuns) {
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
  prepare_environment({.deterministic = false});
  EXPECT_EQ(::getenv("CUBLAS_WORKSPACE_CONFIG"), nullptr);
  prepare_environment({.deterministic = true});
  EXPECT_STREQ(::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  on_a_thread([] {
    ASSERT_TRUE(configure_numerics({.deterministic = true}, {.num_threads = 1}).ok());
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    EXPECT_TRUE(at::globalContext().deterministicCuDNN());
    EXPECT_FALSE(at::globalContext().deterministicFillUninitializedMemory());
    EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
    ASSERT_TRUE(configure_numerics({}, {.num_threads = 1}).ok());
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  });
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  prepare_environment({.deterministic = true});
  EXPECT_STREQ(::getenv("CUBLAS_WORKSPACE_CONFIG"), ":16:8") << "what the user set stays";
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

TEST(NumericsTest, EnablesTf32OnlyWhenRequested) {
  const auto precision = [] {
    return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV);
  };
  on_a_thread([&] {
    ASSERT_TRUE(
        configure_numerics({}, {.precision = config::Precision::kTf32, .num_threads = 1}).ok());
    EXPECT_EQ(precision(), at::Float32Precision::TF32);
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
    EXPECT_TRUE(at::globalContext().allowTF32CuDNN());
    ASSERT_TRUE(
        configure_numerics({}, {.precision = config::Precision::kFp32, .num_threads = 1}).ok());
    EXPECT_EQ(precision(), at::Float32Precision::IEEE);
    EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
    EXPECT_FALSE(at::globalContext().allowTF32CuDNN());
  });
}

}  // namespace
}  // namespace stoker::train
