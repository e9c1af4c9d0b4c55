#include "daemon/feeder/feed_supervisor.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/feeder/confinement.h"
#include "shared/base/file.h"
#include "tests/daemon/feeder/feeder_fixture.h"

namespace stoker::feeder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FeedSupervisorTest : public FeederTest {
 protected:
  void SetUp() override {
    FeederTest::SetUp();
    settings_.feed_program = FEEDER_TEST_READER;
  }
  void behave_as(const std::string& how) { settings_.config_path = path(how); }
};

TEST_F(FeedSupervisorTest, ProcessesFillWhatThePlanSays) {
  settings_.feed.num_workers = 3;
  settings_.feed.num_processes = 2;
  open_ring({.slots = 4, .first_ticket = 5});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->live_readers(), 3);
  EXPECT_EQ(supervisor_->process_ids().size(), 2u);
  for (uint64_t ticket = 5; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->live_readers(), 0);
  EXPECT_TRUE(no_children_left());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(FeedSupervisorTest, ReadersAreTunedBetweenOneForEachProcessAndOneForEachCore) {
  settings_.feed.num_workers.reset();
  settings_.feed.num_processes = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->process_ids().size(), 2u);
  EXPECT_GE(ring_->wanted_readers(), 2u);
  for (uint64_t ticket = 0; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_GE(supervisor_->live_readers(), 2);
  supervisor_->stop();
}

TEST_F(FeedSupervisorTest, ThreadsOfThisProcessAreAsManyAsReadersWhateverProcessesSays) {
  settings_.feed.num_processes = 0;
  settings_.feed.num_workers = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->live_readers(), 2);
  supervisor_->stop();
}

TEST_F(FeedSupervisorTest, ThreadsOfThisProcessFillTheSame) {
  settings_.feed.num_processes = 0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_EQ(supervisor_->live_readers(), 2);
  for (uint64_t ticket = 0; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_TRUE(coordinator_.join(kLong).ok());
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(FeedSupervisorTest, FaultRow60ASampleThatKillsGoesIntoQuarantineAndItsStandInIsRead) {
  behave_as("deadly");
  settings_.feed.num_workers = 4;
  settings_.feed.num_processes = 2;
  settings_.feed.max_sample_error_rate = 1.0;
  unreadable_ = deadly_samples(*plan_);
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  // Into the third epoch: what is in quarantine stays there.
  for (uint64_t ticket = 0; ticket < 70; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_GE(supervisor_->deaths(), 2 * kKillsToQuarantine);
  supervisor_->stop();
  EXPECT_GE(supervisor_->bad_samples(), 4u);
  for (const uint64_t sample : unreadable_)
    EXPECT_THAT(list_of_bad_samples(), HasSubstr("\"sample\":" + std::to_string(sample) + ","));
  EXPECT_THAT(list_of_bad_samples(), HasSubstr("in quarantine"));
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

TEST_F(FeedSupervisorTest,
       FaultRow59ASampleThatMakesForbiddenCallsGoesIntoQuarantineAndTheLogNamesTheCall) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs what confinement takes away";
  behave_as("intruder");
  settings_.feed.max_sample_error_rate = 1.0;
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  supervisor_->stop();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("for system call " + std::to_string(SYS_socket) +
                        ", which is forbidden to readers"));
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_GE(supervisor_->deaths(), kKillsToQuarantine);
}

TEST_F(FeedSupervisorTest, FaultRow59ASampleThatNeedsMoreMemoryThanItMayIsABadOneAndKillsNobody) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs what confinement takes away";
  behave_as("hungry");
  settings_.feed.max_sample_error_rate = 1.0;
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->deaths(), 0u);
  EXPECT_THAT(list_of_bad_samples(), HasSubstr("feed.worker_memory_limit_mib"));
}

TEST_F(FeedSupervisorTest, AQuarantineThatIsGivenBackCostsNoReader) {
  behave_as("deadly");
  unreadable_ = deadly_samples(*plan_);
  settings_.quarantined.assign(unreadable_.begin(), unreadable_.end());
  settings_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->deaths(), 0u);
  EXPECT_EQ(supervisor_->quarantined(), settings_.quarantined);
}

TEST_F(FeedSupervisorTest, ThreadsOfThisProcessHonourTheQuarantine) {
  settings_.feed.num_processes = 0;
  unreadable_ = deadly_samples(*plan_);
  settings_.quarantined.assign(unreadable_.begin(), unreadable_.end());
  settings_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
}

TEST_F(FeedSupervisorTest, AKillerEndsTheRunWhereNoSampleMayBeSkipped) {
  behave_as("deadly");
  settings_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kCorrupt);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("in quarantine"));
}

TEST_F(FeedSupervisorTest, EndOfDataEndsTheReadersAndNotTheRun) {
  open_ring({.slots = 4, .end_ticket = 10});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 10; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_TRUE(eventually([&] { return supervisor_->live_readers() == 0; }));
  EXPECT_EQ(supervisor_->deaths(), 0u);
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(FeedSupervisorTest, FaultRow31ReadersThatRefuseEndTheRunAfterAFewTries) {
  behave_as("refuse");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kInternal);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("exit code 78"));
}

TEST_F(FeedSupervisorTest, EndsRunOnFirstReaderWithoutSandbox) {
  behave_as("unconfined");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kPermission);
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr("feed.sandbox: "), HasSubstr("SystemCallFilter=seccomp"),
                    HasSubstr("set feed.sandbox: false")));
  EXPECT_EQ(supervisor_->deaths(), 0u);
  EXPECT_TRUE(supervisor_->process_ids().empty());
}

TEST_F(FeedSupervisorTest, FaultRow31ReadersThatCrashEndTheRunInTheEnd) {
  behave_as("crash");
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kInternal);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("keep dying"));
}

TEST_F(FeedSupervisorTest, AMissingProgramIsAnErrorThatNamesIt) {
  settings_.feed_program = path("no-such-program");
  open_ring({.slots = 4});
  const Status status = start();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no-such-program"));
}

TEST_F(FeedSupervisorTest, StopKillsAReaderThatDoesNotCome) {
  behave_as("stuck");
  settings_.feed.num_workers = 1;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_EQ(supervisor_->process_ids().size(), 1u);
  const pid_t pid = supervisor_->process_ids()[0];
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT), 0);
  supervisor_->stop();
  EXPECT_TRUE(no_children_left());
}

TEST_F(FeedSupervisorTest, DestructionLeavesNoChild) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  coordinator_.request_stop();
  ASSERT_TRUE(coordinator_.join(kLong).ok());
  supervisor_.reset();
  EXPECT_TRUE(no_children_left());
}

TEST_F(FeedSupervisorTest, BadSamplesEndTheRunWhereTheConfigurationSaysSo) {
  behave_as("bad");
  settings_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kCorrupt);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("made \"bad\""));
}

TEST_F(FeedSupervisorTest, TooManyBadSamplesEndTheRunAndAllAreListed) {
  behave_as("bad");
  settings_.feed.num_workers = 1;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kLong));
  EXPECT_EQ(coordinator_.reason().code(), Code::kCorrupt);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("feed.max_sample_error_rate"));
  supervisor_->stop();
  const std::string list = list_of_bad_samples();
  EXPECT_EQ(static_cast<uint64_t>(std::count(list.begin(), list.end(), '\n')),
            supervisor_->bad_samples());
  EXPECT_THAT(list, HasSubstr(R"("message":"made \"bad\"")"));
}

}  // namespace
}  // namespace stoker::feeder
