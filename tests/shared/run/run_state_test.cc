#include "shared/run/run_state.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

namespace stoker::run {
namespace {

class RunStateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-run-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    layout_ = RunLayout(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(layout_.root()); }

  RunLayout layout_{""};
};

TEST_F(RunStateTest, AnEmptyDirectoryIsNoRun) {
  EXPECT_EQ(look(layout_).kind, RunState::Kind::kAbsent);
}

TEST_F(RunStateTest, AHeldLockIsRunningEvenWhereAnOldEndIsLeft) {
  ASSERT_TRUE(write_run_end(real_files(), layout_, {"stopped", 7, "asked to", 0}).ok());
  const auto lock = lock_file(layout_.lock_file(), "pid=1");
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(look(layout_).kind, RunState::Kind::kRunning);
}

TEST_F(RunStateTest, AKilledTrainerIsDead) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = lock_file(layout_.lock_file(), "pid=1");
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(look(layout_).kind, RunState::Kind::kDead);
}

TEST_F(RunStateTest, TheEndIsReadBackAsItWasWritten) {
  ASSERT_TRUE(write_run_end(real_files(), layout_, {"failed", 12, "a \"quoted\" reason", 70}).ok());
  const RunState state = look(layout_);
  ASSERT_EQ(state.kind, RunState::Kind::kEnded);
  EXPECT_EQ(state.end->state, "failed");
  EXPECT_EQ(state.end->step, 12u);
  EXPECT_EQ(state.end->reason, "a \"quoted\" reason");
  EXPECT_EQ(state.end->exit_code, 70);
}

TEST_F(RunStateTest, AGarbledEndIsNoEnd) {
  ASSERT_TRUE(write_file_atomically(real_files(), layout_.end_file(), "{\"state\": \"fini").ok());
  ASSERT_TRUE(write_file_atomically(real_files(), layout_.lock_file(), "").ok());
  EXPECT_EQ(look(layout_).kind, RunState::Kind::kDead);
  EXPECT_EQ(parse_run_end("{\"state\":1}", "exit_status.json").status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace stoker::run
