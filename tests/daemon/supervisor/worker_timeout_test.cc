// Worker processes that hang: detected, killed and reaped, and their batches read again.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/feed/worker_process.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WorkerTimeoutTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = WORKER_TEST_PROGRAM;
    options_.feed.num_workers = 1;
    options_.feed.worker_timeout_seconds = 60;
    clock_ = &manual_clock_;
  }
  void behave_as(const std::string& how) { options_.config_path = path(how); }

  static void wait_until_stopped(pid_t pid) {
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
  }
  // Advances the clock by a minute and waits until the supervisor has killed a worker.
  void let_a_minute_pass_and_expect_a_kill() {
    const uint64_t hangs = supervisor_->timeouts();
    const std::vector<int> before = supervisor_->process_ids();
    // The supervisor must have observed the worker before the minute starts.
    EXPECT_TRUE(as_time_passes(1s, [&] { return supervisor_->timeouts() > hangs; }));
    // The next worker is started after the restart delay. The ids are read once, because the
    // process can exit between two reads.
    EXPECT_TRUE(as_time_passes(10ms, [&] {
      const std::vector<int> now = supervisor_->process_ids();
      return now.size() == before.size() && now != before;
    }));
  }
  template <typename Condition>
  bool as_time_passes(std::chrono::nanoseconds tick, Condition condition) {
    return eventually([&] {
      manual_clock_.advance(tick);
      return condition() || (coordinator_.wait_for_stop(1ms) && condition());
    });
  }

  ManualClock manual_clock_;
};

TEST_F(WorkerTimeoutTest, KillsStoppedWorkerAndRequeuesItsTicket) {
  behave_as("stuck_once");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_EQ(supervisor_->process_ids().size(), 1u);
  const int stopped = supervisor_->process_ids()[0];
  wait_until_stopped(stopped);
  EXPECT_EQ(feed::process_state(stopped), "stopped");
  EXPECT_EQ(ring_->pop(0ns).status().code(), StatusCode::kTimedOut);
  let_a_minute_pass_and_expect_a_kill();
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->timeouts(), 1u);
  EXPECT_EQ(supervisor_->crashes(), 1u);
  EXPECT_GE(ring_->counters().requeued, 1u);
  EXPECT_THAT(supervisor_->quarantined(), IsEmpty());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerTimeoutTest, DetectsStoppedWorkerWithoutTicketButNotIdleWorker) {
  options_.feed_program = FEED_PROGRAM;
  write_config("{format: synthetic, num_samples: 500, input_shape: [3, 10], num_classes: 4}");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == ring_->slots(); }));
  const auto ids = supervisor_->process_ids();
  ASSERT_EQ(ids.size(), 1u);
  manual_clock_.advance(1h);  // training is paused: workers are idle, not hanging
  EXPECT_FALSE(coordinator_.wait_for_stop(1s));
  EXPECT_EQ(supervisor_->timeouts(), 0u);
  ::kill(ids[0], SIGSTOP);
  wait_until_stopped(ids[0]);
  let_a_minute_pass_and_expect_a_kill();
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_THAT(supervisor_->quarantined(), IsEmpty());
}

TEST_F(WorkerTimeoutTest, ReplacesWorkerWithBlockedReadWithoutQuarantine) {
  behave_as("waits_once");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 3; })) << "ticket 3 hangs";
  let_a_minute_pass_and_expect_a_kill();
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->timeouts(), 1u);
  EXPECT_THAT(supervisor_->quarantined(), IsEmpty());
}

TEST_F(WorkerTimeoutTest, DoesNotBlockOtherWorkersDuringHang) {
  behave_as("stuck_once");
  options_.feed.num_workers = 2;
  options_.feed.num_processes = 2;
  open_ring({.slots = 8});
  ASSERT_TRUE(start().ok());
  const auto ids = supervisor_->process_ids();
  ASSERT_EQ(ids.size(), 2u);
  for (const int pid : ids) wait_until_stopped(pid);  // both processes have generation 1
  ::kill(ids[1], SIGCONT);
  // All tickets except the one held by the first process.
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 7; }));
  let_a_minute_pass_and_expect_a_kill();
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->timeouts(), 1u);
}

TEST_F(WorkerTimeoutTest, QuarantinesSampleWithEndlessDecoding) {
  behave_as("spins");
  clock_ = &system_clock();  // CPU time is measured by this clock
  options_.feed.worker_timeout_seconds = 1;
  options_.feed.max_sample_error_rate = 1.0;
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_GE(supervisor_->timeouts(), feed::kCrashesToQuarantine);
}

TEST_F(WorkerTimeoutTest, FailsRunWithReasonWhenAllWorkersHang) {
  behave_as("stuck");
  options_.max_wait = 1ms;  // a timeout needs several observations, the failure twenty timeouts
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_TRUE(as_time_passes(1s, [&] { return coordinator_.should_stop(); }));
  EXPECT_EQ(coordinator_.reason().code(), StatusCode::kTimedOut);
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr("after a timeout"), HasSubstr("feed.worker_timeout_seconds")));
}

// A process that waits for its vforked child is in an uninterruptible sleep.
TEST(ProcessStateTest, ReportsUninterruptibleSleep) {
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t itself = ::getpid();
    const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      // If the parent was killed before the prctl() call, no signal will ever end this process.
      while (::getppid() == itself) ::pause();
      ::_exit(0);
    }
    ::_exit(0);
  }
  EXPECT_TRUE(eventually([parent] {
    return feed::process_state(parent).starts_with("in uninterruptible sleep (D)");
  })) << feed::process_state(parent);
  ::kill(parent, SIGKILL);
  EXPECT_EQ(::waitpid(parent, nullptr, 0), parent);
}

TEST(ProcessStateTest, DescribesEachState) {
  EXPECT_EQ(feed::describe_process_state("12 (a b) T 1 2", "0"), "stopped");
  EXPECT_EQ(feed::describe_process_state("12 (a) D 1 2", "nfs_wait"),
            "in uninterruptible sleep (D) in nfs_wait");
  EXPECT_EQ(feed::describe_process_state("12 (x) D) S 1", ""), "asleep");
  EXPECT_EQ(feed::describe_process_state("", ""), "");
  EXPECT_EQ(feed::describe_process_state("12 (a)", ""), "");
  EXPECT_EQ(feed::process_state(::getpid()).substr(0, 7), "running");
}

}  // namespace
}  // namespace stoker::supervisor
