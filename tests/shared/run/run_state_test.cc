#include "shared/run/run_state.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

class RunStateTest : public ::testing::Test {
 protected:
  const test::TemporaryDirectory directory_;
  const RunLayout layout_{directory_.path()};
};

TEST_F(RunStateTest, ReportsAbsentOnEmptyDirectory) {
  EXPECT_EQ(read_run_state(layout_).phase, RunState::Phase::kAbsent);
}

TEST_F(RunStateTest, ReportsRunningOnHeldLockDespiteOldExitStatus) {
  ASSERT_TRUE(
      write_exit_status(default_file_system(), layout_, {RunOutcome::kStopped, 7, "asked to", 0})
          .ok());
  const auto lock = lock_file(layout_.lock_file(), "pid=1");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(read_run_state(layout_).phase, RunState::Phase::kRunning);
}

TEST_F(RunStateTest, ReportsCrashAfterTrainerIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = lock_file(layout_.lock_file(), "pid=1");
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(read_run_state(layout_).phase, RunState::Phase::kCrashed);
}

TEST_F(RunStateTest, WritesReasonAsValidUtf8) {
  const auto end = parse_exit_status(to_json(ExitStatus{.reason = "/r\xff"}), "exit_status.json");
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_EQ(end->reason, "/r\xEF\xBF\xBD");
}

TEST(ReasonTest, HasKindOfErrorOnlyWhereItSaysSomething) {
  EXPECT_EQ(reason_of(Status(StatusCode::kCorrupt, "training diverged: loss is not finite")),
            "training diverged: loss is not finite");
  EXPECT_EQ(reason_of(Status(StatusCode::kIoError, "data.train: /png is empty")),
            "data.train: /png is empty");
  EXPECT_EQ(reason_of(Status(StatusCode::kOutOfMemory, "model")), "out of memory: model");
  EXPECT_EQ(reason_of(Status(StatusCode::kInternal, "x")), "internal error: x");
}

TEST_F(RunStateTest, RoundTripsExitStatus) {
  ASSERT_TRUE(write_exit_status(default_file_system(), layout_,
                                {RunOutcome::kFailed, 12, "a \"quoted\" reason", 70})
                  .ok());
  const RunState state = read_run_state(layout_);
  ASSERT_EQ(state.phase, RunState::Phase::kEnded);
  EXPECT_EQ(state.end->outcome, RunOutcome::kFailed);
  EXPECT_EQ(state.end->step, 12u);
  EXPECT_EQ(state.end->reason, "a \"quoted\" reason");
  EXPECT_EQ(state.end->exit_code, 70);
}

TEST_F(RunStateTest, IgnoresCorruptExitStatus) {
  ASSERT_TRUE(
      write_file_atomically(default_file_system(), layout_.exit_status_file(), "{\"state\": \"fini")
          .ok());
  ASSERT_TRUE(write_file_atomically(default_file_system(), layout_.lock_file(), "").ok());
  EXPECT_EQ(read_run_state(layout_).phase, RunState::Phase::kCrashed);
  EXPECT_EQ(parse_exit_status("{\"state\":1}", "exit_status.json").status().code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(parse_exit_status(R"({"state":"asleep","step":1,"reason":"","exit_code":0})", "")
                .status()
                .code(),
            StatusCode::kCorrupt);
}

TEST_F(RunStateTest, DoesNotTakePreemptionForEnd) {
  std::ofstream(layout_.lock_file()).close();
  ASSERT_TRUE(write_exit_status(default_file_system(), layout_,
                                {RunOutcome::kPreempted, 12, "stop requested by SIGTERM", 143})
                  .ok());
  const RunState state = read_run_state(layout_);
  EXPECT_EQ(state.phase, RunState::Phase::kPreempted);
  ASSERT_TRUE(state.end.has_value());
  EXPECT_EQ(state.end->step, 12u);
  EXPECT_EQ(to_string(state.end->outcome), "preempted");
}

TEST_F(RunStateTest, KeepsEndOfRunUntilStartIsAccepted) {
  FileSystem& files = default_file_system();
  std::ofstream(layout_.lock_file()).close();
  EXPECT_TRUE(set_aside_exit_status(files, layout_).ok()) << "a run that has not ended";
  EXPECT_TRUE(put_back_exit_status(files, layout_).ok());
  EXPECT_TRUE(accept_start(files, layout_).ok());
  EXPECT_EQ(read_run_state(layout_).phase, RunState::Phase::kCrashed);

  ASSERT_TRUE(write_exit_status(files, layout_, {RunOutcome::kFinished, 9, "done", 0}).ok());
  const std::string bytes = *read_file(layout_.exit_status_file(), 1000);
  ASSERT_TRUE(set_aside_exit_status(files, layout_).ok());
  EXPECT_FALSE(std::filesystem::exists(layout_.exit_status_file())) << "as while it is running";
  const RunState killed = read_run_state(layout_);
  ASSERT_EQ(killed.phase, RunState::Phase::kEnded) << "of a start that was killed";
  EXPECT_EQ(killed.end->step, 9u);
  ASSERT_TRUE(set_aside_exit_status(files, layout_).ok()) << "the next start";
  ASSERT_TRUE(put_back_exit_status(files, layout_).ok());
  EXPECT_EQ(*read_file(layout_.exit_status_file(), 1000), bytes);

  const LastStart start{"2026-01-05T08:45:37.595Z", {RunOutcome::kFailed, 0, "no such file", 78}};
  ASSERT_TRUE(write_file_atomically(files, layout_.last_start_file(), to_json(start)).ok());
  const RunState refused = read_run_state(layout_);
  ASSERT_TRUE(refused.last_start.has_value());
  EXPECT_EQ(refused.last_start->time, start.time);
  EXPECT_EQ(refused.last_start->end.reason, "no such file");
  EXPECT_EQ(refused.end->exit_code, 0);
  EXPECT_EQ(refused.exit_code(), 78) << "of the newest process";

  ASSERT_TRUE(set_aside_exit_status(files, layout_).ok());
  ASSERT_TRUE(accept_start(files, layout_).ok());
  const RunState running = read_run_state(layout_);
  EXPECT_EQ(running.phase, RunState::Phase::kCrashed) << "it is killed while it trains";
  EXPECT_FALSE(running.last_start.has_value());
}

}  // namespace
}  // namespace stoker::run
