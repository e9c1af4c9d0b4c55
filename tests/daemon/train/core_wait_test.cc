#include "daemon/train/core_wait.h"

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/cgroup.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace stoker::train {
namespace {

using std::chrono::seconds;

// A folder as /proc/PID/task, with threads 1 and 2 of the trainer, and 3 of the log.
class CoreWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set(1, "trainer", 100, 5);
    set(2, "trainer", 90, 6);
    set(3, "log", 1, 0);
    wait_.begin(seconds(1000), 1);
  }
  void set(int thread, const std::string& name, double ran, double waited) const {
    const std::string task = tasks_ / std::to_string(thread);
    std::filesystem::create_directories(task);
    std::ofstream(task + "/comm") << name << '\n';
    std::ofstream(task + "/schedstat")
        << static_cast<int64_t>(ran * 1e9) << ' ' << static_cast<int64_t>(waited * 1e9) << " 7\n";
  }

  const test::TemporaryDirectory tasks_;
  CoreWait wait_{tasks_.path()};
};

TEST_F(CoreWaitTest, ReportsThreadThatWaitsMostAndCoresThatTheyHad) {
  // In 40 s: two threads of which one had half a core, as beside a program that keeps one of two busy.
  set(1, "trainer", 138, 7);
  set(2, "trainer", 110, 26);
  set(3, "log", 2, 39);
  const auto found = wait_.check(seconds(1040));
  ASSERT_TRUE(found.has_value());
  EXPECT_DOUBLE_EQ(found->waited, 0.5);
  EXPECT_EQ(found->num_threads, 2u);
  EXPECT_EQ(found->num_cores, 1u) << "58 s of 80 s: 1.45";
}

TEST_F(CoreWaitTest, IsSilentBeforeEndOfWindowAndWithoutShortage) {
  set(1, "trainer", 110, 25);
  EXPECT_FALSE(wait_.check(seconds(1029)).has_value());
  set(1, "trainer", 128, 12);
  EXPECT_FALSE(wait_.check(seconds(1030)).has_value()) << "7 s of 30 s";
  // The window starts again.
  set(1, "trainer", 129, 40);
  EXPECT_FALSE(wait_.check(seconds(1059)).has_value());
  ASSERT_TRUE(wait_.check(seconds(1060)).has_value());
}

// Also one that was created meanwhile, as those of OpenMP at the first step, but not one that hardly runs.
TEST_F(CoreWaitTest, CountsThreadsThatComputeOnly) {
  set(1, "trainer", 110, 25);
  set(2, "trainer", 90.1, 30);
  set(4, "trainer", 20, 10);
  const auto found = wait_.check(seconds(1030));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->waited, 20.0 / 30, 1e-9);
  EXPECT_EQ(found->num_threads, 2u);
  EXPECT_EQ(found->num_cores, 1u) << "30 s of 60 s";
}

TEST(CoreWaitOfProcessTest, MeasuresNothingWithoutFilesOfKernel) {
  const test::TemporaryDirectory empty;
  CoreWait wait(empty.path());
  wait.begin(seconds(0));
  EXPECT_FALSE(wait.check(seconds(100)).has_value());
}

// In the files of the real kernel: three threads on one core.
TEST(CoreWaitOfProcessTest, FindsThreadsThatShareCore) {
  if (!std::filesystem::exists("/proc/thread-self/schedstat")) GTEST_SKIP() << "no schedstat";
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(allowed_cores().front()), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  {
    std::vector<std::jthread> others;  // with the name and the core of this one
    for (int i = 0; i < 2; ++i)
      others.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
        }
      });
    const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
    CoreWait wait("/proc/self/task", seconds(1));
    wait.begin(now());
    std::optional<CoreShortage> found;
    EXPECT_TRUE(test::eventually([&] {
      if (const auto more = wait.check(now())) found = more;
      return found && found->num_threads == 3 && found->num_cores == 1;
    }));
    ASSERT_TRUE(found.has_value());
    EXPECT_GT(found->waited, 0.3);
    EXPECT_LT(found->waited, 1.1);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace stoker::train
