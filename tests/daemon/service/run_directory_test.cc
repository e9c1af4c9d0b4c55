#include "daemon/service/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "tests/support/forwarding_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::service {
namespace {

using run::RunState;

// The real file system with one failing operation.
class OneFault final : public test::ForwardingFiles {
 public:
  int sync_error = 0, rename_error = 0, mkdir_error = 0;

  Status sync(int fd, const std::string& path) override {
    return sync_error ? Status::from_errno(sync_error, "fsync " + path)
                      : ForwardingFiles::sync(fd, path);
  }
  Status make_directory(const std::string& path) override {
    return mkdir_error ? Status::from_errno(mkdir_error, "mkdir " + path)
                       : ForwardingFiles::make_directory(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return rename_error ? Status::from_errno(rename_error, "rename " + from)
                        : ForwardingFiles::rename(from, to);
  }
};

class RunDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override { layout_ = run::RunLayout(base_ / "runs/demo"); }

  const test::TemporaryDirectory base_;
  run::RunLayout layout_{""};
  ManualClock clock_;
  OneFault files_;
};

TEST_F(RunDirectoryTest, CreatesFoldersForOwnerAndGroupOnly) {
  const mode_t before = ::umask(0);
  const auto directory = RunDirectory::open(layout_, clock_);
  ::umask(before);
  ASSERT_TRUE(directory.ok()) << directory.status().to_string();
  for (const std::string& folder :
       {layout_.root(), layout_.checkpoints_dir(), layout_.eval_dir(), layout_.metrics_dir(),
        layout_.tensorboard_dir(), layout_.logs_dir(), layout_.index_dir()}) {
    struct stat info {};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0) << folder;
    EXPECT_EQ(info.st_mode & 07777, 0750u) << folder;
  }
  EXPECT_TRUE(list_directory(layout_.checkpoints_dir())->empty()) << "the self test left something";
}

TEST_F(RunDirectoryTest, ReportsRunningWhileOpenAndCrashedWithoutExitStatus) {
  {
    const auto directory = RunDirectory::open(layout_, clock_);
    ASSERT_TRUE(directory.ok());
    EXPECT_EQ(run::read_run_state(layout_).phase, RunState::Phase::kRunning);
    EXPECT_NE(read_file(layout_.lock_file(), 100)->find("pid=" + std::to_string(::getpid())),
              std::string::npos);
  }
  EXPECT_EQ(run::read_run_state(layout_).phase, RunState::Phase::kCrashed);
}

TEST_F(RunDirectoryTest, PublishesPauseUntilResumed) {
  auto directory = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(directory.ok());
  EXPECT_FALSE(run::read_run_state(layout_).pause.has_value());
  ASSERT_TRUE(directory->publish_pause(run::PauseStatus{12, "then"}).ok());
  const RunState paused = run::read_run_state(layout_);
  EXPECT_EQ(paused.phase, RunState::Phase::kRunning);
  ASSERT_TRUE(paused.pause.has_value());
  EXPECT_EQ(paused.pause->step, 12u);
  EXPECT_EQ(paused.pause->since, "then");
  ASSERT_TRUE(directory->publish_pause({}).ok());
  EXPECT_FALSE(run::read_run_state(layout_).pause.has_value());
  EXPECT_FALSE(std::filesystem::exists(layout_.paused_file()));
}

TEST_F(RunDirectoryTest, IgnoresAndClearsPauseStateOfKilledProcess) {
  {
    auto directory = RunDirectory::open(layout_, clock_);
    ASSERT_TRUE(directory->publish_pause(run::PauseStatus{12, "then"}).ok());
  }
  EXPECT_EQ(run::read_run_state(layout_).phase, RunState::Phase::kCrashed);
  EXPECT_FALSE(run::read_run_state(layout_).pause.has_value());
  const auto again = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(run::read_run_state(layout_).pause.has_value());
}

TEST_F(RunDirectoryTest, WritesExitStatusAndRemovesItOnNextStart) {
  {
    auto directory = RunDirectory::open(layout_, clock_);
    ASSERT_TRUE(directory.ok());
    ASSERT_TRUE(directory
                    ->save_exit_status({run::RunOutcome::kStopped, 12, "stopped by SIGTERM", 0},
                                       /*is_accepted=*/true)
                    .ok());
  }
  const RunState ended = run::read_run_state(layout_);
  ASSERT_EQ(ended.phase, RunState::Phase::kEnded);
  EXPECT_EQ(ended.end->step, 12u);
  const auto again = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(std::filesystem::exists(layout_.exit_status_file()));
}

TEST_F(RunDirectoryTest, RejectsSecondProcessWithPidOfFirst) {
  const auto first = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(first.ok());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto second = RunDirectory::open(layout_, clock_);
    const bool as_expected =
        second.status().code() == StatusCode::kBusy &&
        second.status().message().find("pid=" + std::to_string(::getppid())) != std::string::npos;
    ::_exit(as_expected ? static_cast<int>(exit_code_for(second.status())) : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 75);
}

TEST_F(RunDirectoryTest, AcquiresLockOfKilledProcessImmediately) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto held = RunDirectory::open(layout_, clock_);
    (void)!::write(ready[1], held.ok() ? "1" : "0", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, '1');
  EXPECT_EQ(RunDirectory::open(layout_, clock_).status().code(), StatusCode::kBusy);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunDirectory::open(layout_, clock_).ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(RunDirectoryTest, RejectsReadOnlyDirectoryWithPathAndUser) {
  files_.mkdir_error = EROFS;
  const auto directory = RunDirectory::open(layout_, clock_, files_);
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(exit_code_for(directory.status()), ExitCode::kConfiguration);
  EXPECT_NE(directory.status().message().find(layout_.root()), std::string::npos);
  EXPECT_NE(directory.status().message().find("user " + std::to_string(::geteuid())),
            std::string::npos);
  EXPECT_TRUE(directory.status().message().ends_with(
      "Read-only file system; its file system is read-only: mount it writable, or choose another "
      "run.dir"))
      << directory.status().message();
}

TEST_F(RunDirectoryTest, SaysWhatToDoAboutEachError) {
  for (const auto& [error, remedy] :
       {std::pair(EACCES, "; change its owner, or "), std::pair(EPERM, "; change its owner, or "),
        std::pair(ENOENT, "; create it, or ")}) {
    files_.mkdir_error = error;
    const Status failed = RunDirectory::open(layout_, clock_, files_).status();
    EXPECT_EQ(exit_code_for(failed), ExitCode::kConfiguration) << error;
    EXPECT_TRUE(failed.message().ends_with(remedy + std::string("choose another run.dir")))
        << failed.message();
  }
}

TEST_F(RunDirectoryTest, DoesNotWriteExitStatusIntoReplacedDirectory) {
  auto directory = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(directory.ok());
  std::filesystem::rename(layout_.root(), layout_.root() + "-moved");
  EXPECT_EQ(
      directory->save_exit_status({run::RunOutcome::kFinished, 9, "", 0}, /*is_accepted=*/true)
          .code(),
      StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(layout_.root()));
  const auto another = RunDirectory::open(layout_, clock_);
  ASSERT_TRUE(another.ok()) << another.status().message();
  EXPECT_EQ(
      directory->save_exit_status({run::RunOutcome::kFinished, 9, "", 0}, /*is_accepted=*/true)
          .code(),
      StatusCode::kNotFound);
  EXPECT_EQ(run::read_run_state(layout_).phase, RunState::Phase::kRunning);
  EXPECT_FALSE(std::filesystem::exists(layout_.exit_status_file()));
}

TEST_F(RunDirectoryTest, ReportsExistingFileAtRunPath) {
  ASSERT_TRUE(make_directories(default_file_system(), base_ / "runs").ok());
  ASSERT_TRUE(write_file_atomically(default_file_system(), layout_.root(), "x").ok());
  const auto directory = RunDirectory::open(layout_, clock_);
  EXPECT_EQ(directory.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(directory.status().message().find("not a directory; remove it, or choose another"),
            std::string::npos);
}

TEST_F(RunDirectoryTest, DetectsFailingSyncOrRenameAtStart) {
  files_.sync_error = EIO;
  EXPECT_EQ(RunDirectory::open(layout_, clock_, files_).status().code(), StatusCode::kIoError);
  files_.sync_error = ENOSPC;
  EXPECT_EQ(RunDirectory::open(layout_, clock_, files_).status().code(), StatusCode::kNoSpace);
  files_.sync_error = 0;
  files_.rename_error = EPERM;
  EXPECT_EQ(RunDirectory::open(layout_, clock_, files_).status().code(),
            StatusCode::kInvalidArgument);
  files_.rename_error = 0;
  EXPECT_TRUE(RunDirectory::open(layout_, clock_, files_).ok());
}

// Regression test: a kill after the rename of the self-test caused every later start to be
// rejected.
TEST_F(RunDirectoryTest, OpensAfterStartKilledDuringSelfTest) {
  const std::string folder = layout_.checkpoints_dir() + "/.tmp-self-test";
  std::filesystem::create_directories(folder);
  for (const char* const name : {"/file", "/renamed"})
    ASSERT_TRUE(write_file_atomically(default_file_system(), folder + name, "stoker\n").ok());
  const auto directory = RunDirectory::open(layout_, clock_);
  EXPECT_TRUE(directory.ok()) << directory.status().to_string();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(RunDirectoryTest, DoesNotCreateMissingCheckpointsOfRunThatHasSaved) {
  ASSERT_TRUE(RunDirectory::open(layout_, clock_).ok());
  std::filesystem::remove(layout_.checkpoints_dir());
  ASSERT_TRUE(
      write_file_atomically(default_file_system(), layout_.last_checkpoint_file(), "{}").ok());
  {
    const auto directory = RunDirectory::open(layout_, clock_);
    EXPECT_TRUE(directory.ok()) << directory.status().to_string();
    EXPECT_FALSE(std::filesystem::exists(layout_.checkpoints_dir()));
  }
}

TEST_F(RunDirectoryTest, RejectsLinkInPlaceOfFolder) {
  ASSERT_TRUE(RunDirectory::open(layout_, clock_).ok());
  std::filesystem::create_directory(base_ / "elsewhere");
  for (const char* const target : {"elsewhere", "unmounted"}) {
    std::filesystem::remove(layout_.checkpoints_dir());
    std::filesystem::create_symlink(base_ / target, layout_.checkpoints_dir());
    const Status opened = RunDirectory::open(layout_, clock_).status();
    EXPECT_EQ(exit_code_for(opened), ExitCode::kConfiguration);
    EXPECT_THAT(opened.message(), testing::HasSubstr(layout_.checkpoints_dir() + ": a symlink"));
  }
  EXPECT_TRUE(list_directory(base_ / "elsewhere")->empty());
  EXPECT_FALSE(std::filesystem::exists(base_ / "unmounted"));
}

TEST_F(RunDirectoryTest, PreservesPreviousExitStatusOnFailedStart) {
  {
    ASSERT_TRUE(RunDirectory::open(layout_, clock_)
                    ->save_exit_status({run::RunOutcome::kFinished, 9, "", 0}, /*is_accepted=*/true)
                    .ok());
  }
  files_.sync_error = EIO;
  ASSERT_FALSE(RunDirectory::open(layout_, clock_, files_).ok());
  EXPECT_EQ(run::read_run_state(layout_).phase, RunState::Phase::kEnded);
}

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DurabilityCheckTest, ReportsNoWarningsForLocalDisk) {
  constexpr int64_t kExt4 = 0xef53;
  EXPECT_THAT(durability_warnings({.has_working_locks = true, .kind = kExt4}), IsEmpty());
}

TEST(DurabilityCheckTest, WarnsWhenLocksDoNotWork) {
  EXPECT_THAT(durability_warnings({.has_working_locks = false}),
              ElementsAre(HasSubstr("locks (flock) do not work there")));
}

TEST(DurabilityCheckTest, WarnsOnNetworkFileSystemWithSettingToChange) {
  EXPECT_THAT(durability_warnings({.has_working_locks = true, .kind = 0x6969}),
              ElementsAre(AllOf(HasSubstr("NFS"), HasSubstr("checkpoint.min_age_seconds"))));
}

TEST(DurabilityCheckTest, WarnsOnFileSystemInMemory) {
  EXPECT_THAT(durability_warnings({.has_working_locks = true, .kind = 0x01021994}),
              ElementsAre(AllOf(HasSubstr("tmpfs"), HasSubstr("set run.dir"))));
}

// Of a run in /dev/shm, which is one.
TEST(DurabilityCheckTest, WarnsWhenRunIsStartedInMemory) {
  constexpr int64_t kTmpfs = 0x01021994;
  struct statfs info {};
  if (::access("/dev/shm", W_OK) != 0 || ::statfs("/dev/shm", &info) != 0 ||
      static_cast<int64_t>(info.f_type) != kTmpfs)
    GTEST_SKIP() << "/dev/shm is no tmpfs, or not writable";
  const test::TemporaryDirectory folder("/dev/shm");
  const auto run =
      RunDirectory::open(run::RunLayout(folder / "run"), system_clock(), default_file_system());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  EXPECT_THAT(run->warnings(), ElementsAre(HasSubstr("it is on tmpfs, in memory")));
}

TEST(DurabilityCheckTest, DetectsWhetherLockIsHeld) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "LOCK";
  {
    const auto lock = lock_file(path, "me");
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(inspect_file_system(path).has_working_locks);
    EXPECT_NE(inspect_file_system(path).kind, 0);
  }
  EXPECT_FALSE(inspect_file_system(path).has_working_locks);
}

}  // namespace
}  // namespace stoker::service
