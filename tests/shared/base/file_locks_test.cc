#include "shared/base/file_locks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using testing::HasSubstr;

class FileLocksTest : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(path()) << "x"; }
  std::string path() const { return folder_ / "file"; }
  UniqueFd lock(int kind) const {
    UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_EQ(::flock(fd.get(), kind | LOCK_NB), 0);
    return fd;
  }

  const test::TemporaryDirectory folder_;
};

TEST_F(FileLocksTest, FindsHolderOfExclusiveLockOnly) {
  EXPECT_FALSE(FileLocks::read().is_locked(path()));
  {
    const UniqueFd shared = lock(LOCK_SH);
    EXPECT_TRUE(FileLocks::read().is_locked(path()));
    EXPECT_FALSE(FileLocks::read().find_exclusive_holder(path()).has_value());
  }
  const UniqueFd exclusive = lock(LOCK_EX);
  EXPECT_EQ(FileLocks::read().find_exclusive_holder(path()), ::getpid());
  EXPECT_FALSE(FileLocks::read().is_locked(folder_ / "missing"));
}

TEST_F(FileLocksTest, DescribesHolderByPidAndCommand) {
  const UniqueFd exclusive = lock(LOCK_EX);
  EXPECT_THAT(describe_lock_holder(path()), HasSubstr("pid " + std::to_string(::getpid()) + " ("));
  EXPECT_THAT(describe_lock_holder(path()), HasSubstr("base_test"));
}

TEST_F(FileLocksTest, DescribesCommandAsPrintableText) {
  const UniqueFd fd(::open(path().c_str(), O_RDWR));  // inherited, like the lock
  const std::string unprintable = "<\x1b\x7f\u009b\u202e\xff>" + std::string(400, 'a') + "é";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0)
      ::execl("/bin/sh", "sh", "-c", "kill -STOP $$", unprintable.c_str(), nullptr);
    ::_exit(1);
  }
  std::string holder;
  const auto has_started = [&] {
    holder = describe_lock_holder(path());
    return holder.find("kill -STOP") != std::string::npos;
  };
  for (int tries = 0; tries < 6000 && !has_started(); ++tries) ::usleep(10'000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(holder, HasSubstr("<    \xEF\xBF\xBD>aaa"));
  EXPECT_TRUE(holder.ends_with("a...)")) << holder;
}

// As after `(flock 9; …) 9<FILE` in a shell: the process that took the lock has exited.
TEST_F(FileLocksTest, DescribesInheritedLock) {
  const UniqueFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::flock(fd.get(), LOCK_EX | LOCK_NB));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(describe_lock_holder(path()),
              HasSubstr("pid " + std::to_string(child) + " (it has exited; "));
}

TEST_F(FileLocksTest, DescribesHolderThatIsNotListed) {
  EXPECT_EQ(describe_lock_holder(path()), "another host or container");
}

}  // namespace
}  // namespace stoker
