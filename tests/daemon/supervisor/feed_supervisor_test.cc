#include "daemon/supervisor/feed_supervisor.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "shared/base/file.h"
#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/shared/ring/ring_view.h"

namespace stoker::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FeedSupervisorTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = WORKER_TEST_PROGRAM;
  }
  void behave_as(const std::string& how) { options_.config_path = path(how); }
  void expect_stop(StatusCode code, const ::testing::Matcher<const std::string&>& message) {
    ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
    EXPECT_EQ(coordinator_.reason().code(), code);
    EXPECT_THAT(coordinator_.reason().message(), message);
  }
};

TEST_F(FeedSupervisorTest, TunesWorkerCountBetweenProcessesAndCores) {
  options_.feed.num_workers.reset();
  options_.feed.num_processes = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->process_ids().size(), 2u);
  EXPECT_GE(ring_->active_workers(), 2u);
  for (uint64_t ticket = 0; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_GE(supervisor_->live_workers(), 2);
  supervisor_->stop();
}

TEST_F(FeedSupervisorTest, RunsConfiguredNumberOfInProcessWorkers) {
  options_.feed.num_processes = 0;
  options_.feed.num_workers = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->live_workers(), 2);
  supervisor_->stop();
}

TEST_F(FeedSupervisorTest, FillsPlannedBatchesWithInProcessWorkers) {
  options_.feed.num_processes = 0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->live_workers(), 2);
  for (uint64_t ticket = 0; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_TRUE(coordinator_.join(kTestTimeout).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(FeedSupervisorTest, QuarantinesCrashingSampleAndReadsReplacement) {
  behave_as("killed");
  options_.feed.num_workers = 4;
  options_.feed.num_processes = 2;
  options_.feed.max_sample_error_rate = 1.0;
  unreadable_ = crashing_samples(*plan_);
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  // Into the third epoch: quarantined samples remain quarantined.
  for (uint64_t ticket = 0; ticket < 70; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_GE(supervisor_->crashes(), 2 * feed::kCrashesToQuarantine);
  supervisor_->stop();
  EXPECT_GE(supervisor_->sample_errors(), 4u);
  for (const uint64_t sample : unreadable_)
    EXPECT_THAT(list_of_sample_errors(), HasSubstr("\"sample\":" + std::to_string(sample) + ","));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("quarantined: "));
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

TEST_F(FeedSupervisorTest, QuarantinesSampleAndLogsSyscallOnDeniedSyscall) {
  if (feeder::kSanitized) GTEST_SKIP() << "sanitizers need system calls that the sandbox denies";
  behave_as("forbidden_call");
  options_.feed.max_sample_error_rate = 1.0;
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  supervisor_->stop();
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("for system call " + std::to_string(SYS_socket) + ", which is denied to workers"));
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_GE(supervisor_->crashes(), feed::kCrashesToQuarantine);
}

TEST_F(FeedSupervisorTest, ReportsSampleErrorAndKeepsWorkerOnMemoryLimit) {
  if (feeder::kSanitized) GTEST_SKIP() << "sanitizers need system calls that the sandbox denies";
  behave_as("exhausts_memory");
  options_.feed.max_sample_error_rate = 1.0;
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->crashes(), 0u);
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("feed.worker_memory_limit_mib"));
}

TEST_F(FeedSupervisorTest, RestoresQuarantineWithoutCrash) {
  behave_as("killed");
  unreadable_ = crashing_samples(*plan_);
  options_.quarantined.assign(unreadable_.begin(), unreadable_.end());
  options_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->crashes(), 0u);
  EXPECT_EQ(supervisor_->quarantined(), options_.quarantined);
}

TEST_F(FeedSupervisorTest, AppliesQuarantineToInProcessWorkers) {
  options_.feed.num_processes = 0;
  unreadable_ = crashing_samples(*plan_);
  options_.quarantined.assign(unreadable_.begin(), unreadable_.end());
  options_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
}

TEST_F(FeedSupervisorTest, FailsRunOnQuarantineWhenSampleErrorsAreFatal) {
  behave_as("killed");
  options_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kCorrupt, HasSubstr("quarantined: "));
}

TEST_F(FeedSupervisorTest, FailsRunAfterWorkersExitWithError) {
  behave_as("exits_78");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kInvalidArgument, HasSubstr("exit code 78"));
}

TEST_F(FeedSupervisorTest, FailsRunWithErrorThatWorkersReport) {
  behave_as("fails");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(
      StatusCode::kCorrupt,
      "worker processes fail repeatedly (3 times without a new batch): a.csv: line 7: ?[2J");
}

// The producers of a closed ring exit; only stokerd knows that it is not closed.
TEST_F(FeedSupervisorTest, FailsRunWhenWorkersExitBecauseOfOverwrittenFlag) {
  open_ring({.slots = 4});
  const ring::RingView view(*ring_);
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  ring::overwrite(view.header().closed, 1u);
  expect_stop(StatusCode::kCorrupt, HasSubstr("the ring's closed is 1 instead of 0"));
}

TEST_F(FeedSupervisorTest, FailsRunWhenWorkersExitBecauseOfOverwrittenTicket) {
  open_ring({.slots = 4, .end_ticket = 1000});
  const ring::RingView view(*ring_);
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  ring::overwrite(view.header().next_ticket, uint64_t{1000});
  expect_stop(StatusCode::kCorrupt, HasSubstr("the ring's next_ticket is 1000 instead of 1"));
}

TEST_F(FeedSupervisorTest, RestartsWorkersWhenDataOnlySeemedToEnd) {
  open_ring({.slots = 4, .end_ticket = 4});
  const ring::RingView view(*ring_);
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(eventually([&] { return supervisor_->live_workers() == 0; }));
  ring::overwrite(view.slot_word(2), ring::encode({.phase = ring::Phase::kFree, .turn = 0}));
  for (uint64_t ticket = 0; ticket < 4; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

TEST_F(FeedSupervisorTest, RestartsWorkerWithOverwrittenRow) {
  options_.feed.num_workers = 1;
  open_ring({.slots = 4});
  const ring::RingView view(*ring_);
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  ring::overwrite(view.producer(0).word, uint64_t{0});
  for (uint64_t ticket = 1; ticket < 20; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_GE(supervisor_->crashes(), 1u);
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

TEST_F(FeedSupervisorTest, FailsRunOnImpossibleNumberOfLostReports) {
  open_ring({.slots = 4});
  const ring::RingView view(*ring_);
  ASSERT_TRUE(start().ok());
  ring::overwrite(view.header().lost_reports, uint64_t{5});
  expect_stop(StatusCode::kCorrupt, HasSubstr("5 lost reports of 0"));
}

TEST_F(FeedSupervisorTest, EndsRunWhenFirstWorkerHasNoSandbox) {
  behave_as("sandbox_refused");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kPermission,
              AllOf(HasSubstr("feed.sandbox: "), HasSubstr("SystemCallFilter=seccomp"),
                    HasSubstr("set feed.sandbox: false")));
  EXPECT_EQ(supervisor_->crashes(), 0u);
  EXPECT_TRUE(supervisor_->process_ids().empty());
}

TEST_F(FeedSupervisorTest, FailsRunAfterRepeatedWorkerCrashes) {
  behave_as("crash");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kInternal, HasSubstr("crash repeatedly"));
}

// As by the kernel.
TEST_F(FeedSupervisorTest, NamesMemoryWhenWorkersAreKilled) {
  behave_as("oom_killed");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(exit_code_for(coordinator_.reason()), ExitCode::kOutOfMemory);
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr("last cause: signal 9 (Killed)"), HasSubstr("memory ran out"),
                    HasSubstr("feed.num_workers"), HasSubstr("MemoryMax=")));
}

TEST_F(FeedSupervisorTest, ReportsMissingWorkerProgram) {
  options_.feed_program = path("no-such-program");
  open_ring({.slots = 4});
  const Status status = start();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no-such-program"));
}

TEST_F(FeedSupervisorTest, KillsUnresponsiveWorkerOnStop) {
  behave_as("stuck");
  options_.feed.num_workers = 1;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_EQ(supervisor_->process_ids().size(), 1u);
  const pid_t pid = supervisor_->process_ids()[0];
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
  supervisor_->stop();
  EXPECT_TRUE(no_children_left());
}

TEST_F(FeedSupervisorTest, LeavesNoChildProcessAfterDestruction) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  coordinator_.request_stop();
  ASSERT_TRUE(coordinator_.join(kTestTimeout).ok());
  supervisor_.reset();
  EXPECT_TRUE(no_children_left());
}

TEST_F(FeedSupervisorTest, FailsRunOnSampleErrorWhenConfigured) {
  behave_as("bad");
  options_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kCorrupt, HasSubstr("made \"bad\""));
}

TEST_F(FeedSupervisorTest, FailsRunAboveSampleErrorLimitAndRecordsAll) {
  behave_as("bad");
  options_.feed.num_workers = 1;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  expect_stop(StatusCode::kCorrupt, HasSubstr("feed.max_sample_error_rate"));
  supervisor_->stop();
  const std::string list = list_of_sample_errors();
  EXPECT_EQ(static_cast<uint64_t>(std::count(list.begin(), list.end(), '\n')),
            supervisor_->sample_errors());
  EXPECT_THAT(list, HasSubstr(R"("message":"made \"bad\"")"));
}

}  // namespace
}  // namespace stoker::supervisor
