#include "daemon/supervisor/progress_monitor.h"

#include <gtest/gtest.h>

namespace stoker::supervisor {
namespace {

using namespace std::chrono_literals;

// A producer that is observed once a second.
class ProgressMonitorTest : public ::testing::Test {
 protected:
  bool check_worker(std::chrono::seconds time, ring::ProducerProgress progress) {
    now_ += time;
    return watch_.has_timed_out({.now = now_, .cpu_time = cpu_time_, .progress = progress});
  }
  // Observes often enough; true if the producer is reported as hanging.
  bool is_found_timed_out(ring::ProducerProgress progress) {
    bool has_timed_out = false;
    for (int i = 0; i < ProgressMonitor::kConsecutiveOverdue && !has_timed_out; ++i)
      has_timed_out = check_worker(0s, progress);
    return has_timed_out;
  }

  ProgressMonitor watch_{10s};
  std::chrono::nanoseconds now_ = 1h;
  std::chrono::nanoseconds cpu_time_ = 5s;
};

TEST_F(ProgressMonitorTest, DetectsHangWithTicketWithoutProgress) {
  EXPECT_FALSE(check_worker(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(check_worker(9s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(is_found_timed_out({.claims = 1, .samples = 7})) << "9 s are below the timeout";
  now_ += 1s;
  EXPECT_TRUE(is_found_timed_out({.claims = 1, .samples = 7}));
  EXPECT_EQ(watch_.idle_time(), 10s);
}

TEST_F(ProgressMonitorTest, ReportsNoHangForSlowWorker) {
  for (uint64_t samples = 0; samples < 100; ++samples)
    EXPECT_FALSE(check_worker(9s, {.claims = 1, .samples = samples}));
}

TEST_F(ProgressMonitorTest, ReportsNoHangForIdleWorker) {
  for (uint64_t looks = 0; looks < 100; ++looks)
    EXPECT_FALSE(check_worker(60s, {.samples = 3, .polls = looks}));
}

TEST_F(ProgressMonitorTest, ExcludesIdleTime) {
  EXPECT_FALSE(check_worker(0s, {.polls = 1}));
  EXPECT_FALSE(check_worker(60s, {.polls = 600}));
  EXPECT_FALSE(is_found_timed_out({.claims = 1, .polls = 600}));
}

TEST_F(ProgressMonitorTest, DetectsHangWithoutPolls) {
  EXPECT_FALSE(check_worker(0s, {.polls = 4}));
  now_ += 10s;
  EXPECT_TRUE(is_found_timed_out({.polls = 4}));
}

TEST_F(ProgressMonitorTest, DetectsHangWithTicketWhileOtherThreadsPoll) {
  bool has_timed_out = false;
  for (uint64_t looks = 0; looks < 200 && !has_timed_out; ++looks)
    has_timed_out = check_worker(1s, {.claims = 1, .samples = 7, .polls = looks});
  EXPECT_TRUE(has_timed_out);
}

TEST_F(ProgressMonitorTest, ToleratesSystemSuspend) {
  EXPECT_FALSE(check_worker(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(check_worker(3600s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(check_worker(0s, {.claims = 1, .samples = 7}));
  EXPECT_FALSE(check_worker(0s, {.claims = 1, .samples = 8})) << "progress resumed";
  EXPECT_FALSE(is_found_timed_out({.claims = 1, .samples = 8}));
}

TEST_F(ProgressMonitorTest, ReportsNoHangWithoutTimeout) {
  watch_ = ProgressMonitor(0s);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(check_worker(3600s, {.claims = 1, .samples = 7}));
}

TEST_F(ProgressMonitorTest, DistinguishesCpuBoundHangFromWaiting) {
  EXPECT_FALSE(check_worker(0s, {.claims = 1, .samples = 7}));
  now_ += 10s;
  EXPECT_TRUE(is_found_timed_out({.claims = 1, .samples = 7}));
  EXPECT_FALSE(watch_.is_cpu_bound());
  cpu_time_ += 9s;
  EXPECT_TRUE(check_worker(0s, {.claims = 1, .samples = 7}));
  EXPECT_TRUE(watch_.is_cpu_bound());
}

}  // namespace
}  // namespace stoker::supervisor
