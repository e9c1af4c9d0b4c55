#include "evaluator/cpu_pacer.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using testing::Each;

class CpuPacerTest : public ::testing::Test {
 protected:
  // After a batch during which the thread ran, waited for a CPU, and slept while a worker process
  // read samples.
  nanoseconds pause_after(nanoseconds run_time, nanoseconds run_delay, nanoseconds slept = 0ns) {
    times_.run_time += run_time;
    times_.run_delay += run_delay;
    clock_.advance(run_time + run_delay + slept);
    return pacer_.pause_if_due(stop_.get_token(), [this] { return is_training_(); });
  }

  ManualClock clock_;
  CpuTimes times_{5s, 3s};  // before the evaluation
  std::stop_source stop_;
  std::function<bool()> is_training_ = [] { return true; };
  std::vector<nanoseconds> sleeps_;
  CpuPacer pacer_{clock_,
                  [this](nanoseconds duration, const std::stop_token&) {
                    sleeps_.push_back(duration);
                    clock_.advance(duration);
                  },
                  [this] { return times_; }};
};

TEST_F(CpuPacerTest, NeverPausesWithFreeCpu) {
  for (int batch = 0; batch < 100; ++batch) EXPECT_EQ(pause_after(200ms, 2ms), 0ns);
}

TEST_F(CpuPacerTest, LimitsComputingToDutyCycleWhileItCompetes) {
  EXPECT_EQ(pause_after(100ms, 200ms), 2400ms);
  EXPECT_EQ(pause_after(200ms, 30ms), 4800ms);
  EXPECT_EQ(pause_after(60s, 60s), 24min);
}

TEST_F(CpuPacerTest, CountsReadingOfSamplesAsComputing) {
  EXPECT_EQ(pause_after(100ms, 50ms, 300ms), 9600ms);
}

TEST_F(CpuPacerTest, PausesFromMinimumContentionOn) {
  EXPECT_EQ(pause_after(901ms, 99ms), 0ns);
  EXPECT_EQ(pause_after(900ms, 100ms), 21600ms);
}

TEST_F(CpuPacerTest, StopsPausingWhenCpuIsFreeAgain) {
  EXPECT_GT(pause_after(200ms, 50ms), 0ns);
  EXPECT_EQ(pause_after(200ms, 0ms), 0ns);
}

TEST_F(CpuPacerTest, MergesShortBatches) {
  EXPECT_EQ(pause_after(90ms, 100ms), 0ns);
  EXPECT_EQ(pause_after(10ms, 0ms), 2400ms);
}

TEST_F(CpuPacerTest, NeverPausesWithoutTraining) {
  is_training_ = [] { return false; };
  EXPECT_EQ(pause_after(60s, 60s), 0ns);
  EXPECT_TRUE(sleeps_.empty());
}

TEST_F(CpuPacerTest, EndsPauseSoonAfterTrainingEnds) {
  const nanoseconds end = clock_.monotonic() + 2min + 90s;
  is_training_ = [&] { return clock_.monotonic() < end; };
  EXPECT_EQ(pause_after(60s, 60s), 90s);
  EXPECT_FALSE(sleeps_.empty());
  EXPECT_THAT(sleeps_, Each(nanoseconds(CpuPacer::kCheckInterval)));
}

TEST_F(CpuPacerTest, EndsPauseOnStop) {
  is_training_ = [this] {
    if (sleeps_.size() == 3) stop_.request_stop();
    return true;
  };
  EXPECT_EQ(pause_after(60s, 60s), 4s);
}

TEST_F(CpuPacerTest, CountsNoPauseAsComputing) {
  EXPECT_EQ(pause_after(100ms, 200ms), 2400ms);
  EXPECT_EQ(pause_after(100ms, 200ms), 2400ms);
}

TEST_F(CpuPacerTest, NeverPausesBecauseOfItsOwnQuota) {
  for (int batch = 0; batch < 10; ++batch) {
    times_.throttled += 900ms;
    EXPECT_EQ(pause_after(100ms, 900ms), 0ns);
  }
  // Of several CPUs, more than this thread waited.
  times_.throttled += 4s;
  EXPECT_EQ(pause_after(100ms, 900ms), 0ns);
}

TEST_F(CpuPacerTest, PausesForCompetitionInAdditionToQuota) {
  times_.throttled += 500ms;
  EXPECT_EQ(pause_after(100ms, 700ms), 2400ms);
}

TEST_F(CpuPacerTest, IgnoresTimeBeforeBurst) {
  clock_.advance(1h);
  times_.run_delay += 1h;
  pacer_.start_burst();
  EXPECT_EQ(pause_after(200ms, 0ms), 0ns);
}

TEST_F(CpuPacerTest, NeverPausesIfKernelReportsNothing) {
  CpuPacer pacer(
      clock_, [](auto&&...) {}, [] { return CpuTimes(); });
  clock_.advance(1s);
  EXPECT_EQ(pacer.pause_if_due({}, [] { return true; }), 0ns);
}

class ThrottledTimeTest : public ::testing::Test {
 protected:
  nanoseconds read_time(const std::string& cgroup) const {
    std::ofstream(folder_ / "cgroup") << cgroup;
    return read_throttled_time(folder_ / "cgroup", folder_ / "mount");
  }
  void write_stat(const std::string& group, const std::string& text) const {
    const std::string folder = folder_ / ("mount/" + group);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/cpu.stat") << text;
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(ThrottledTimeTest, IsThatOfCgroupItself) {
  write_stat("system.slice", "usage_usec 9\nnr_throttled 3\nthrottled_usec 800\n");
  write_stat("system.slice/eval", "usage_usec 7\nnr_throttled 2\nthrottled_usec 1500\n");
  EXPECT_EQ(read_time("0::/system.slice/eval\n"), 1500us);
  write_stat("cpu,cpuacct/eval", "nr_periods 4\nnr_throttled 2\nthrottled_time 2500\n");
  EXPECT_EQ(read_time("5:memory:/other\n4:cpu,cpuacct:/eval\n0::/\n"), 2500ns);
}

TEST_F(ThrottledTimeTest, IsThatOfContainerIfItsGroupIsNotMounted) {
  write_stat("cpu", "throttled_time 30\n");
  EXPECT_EQ(read_time("4:cpu:/docker/4711\n"), 30ns);
}

TEST_F(ThrottledTimeTest, IsZeroWithoutQuota) {
  write_stat("plain", "usage_usec 9\n");
  EXPECT_EQ(read_time("0::/plain\n"), 0ns);
  EXPECT_EQ(read_time("0::/missing\n"), 0ns);
  EXPECT_EQ(read_time("garbage"), 0ns);
  EXPECT_EQ(read_throttled_time(folder_ / "no_such_file"), 0ns);
}

TEST(CgroupTest, IsSharedWithItselfAndNoMissingProcess) {
  std::ifstream file("/proc/self/cgroup");
  if (!file || file.peek() == EOF) GTEST_SKIP() << "this kernel has no cgroups";
  EXPECT_TRUE(shares_cgroup(::getpid()));
  EXPECT_FALSE(shares_cgroup(0));
}

nanoseconds thread_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

TEST_F(CpuPacerTest, ReadsRunTimeAndRunDelayOfCallingThread) {
  const nanoseconds start = thread_cpu_time();
  for (volatile int i = 0; thread_cpu_time() < start + 50ms;) i = i + 1;
  const nanoseconds before = thread_cpu_time();
  const CpuTimes times = read_cpu_times();
  if (times.run_time == 0ns) GTEST_SKIP() << "this kernel does not report the times of threads";
  // The kernel updates run_time at least every scheduler tick, 10 ms or less.
  EXPECT_GE(times.run_time, before - 20ms);
  EXPECT_LE(times.run_time, thread_cpu_time());
}

}  // namespace
}  // namespace stoker::evaluator
