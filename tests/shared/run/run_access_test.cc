#include "shared/run/run_access.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RunAccessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(layout_.eval_dir());
    set_mode(layout_.root(), 0750);
    set_mode(layout_.eval_dir(), 0750);
  }
  static void set_mode(const std::string& path, mode_t mode) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }

  const test::TemporaryDirectory base_;
  const RunLayout layout_{base_ / "run"};
};

TEST_F(RunAccessTest, AcceptsOwnDirectoryThatOthersCannotWriteTo) {
  for (const mode_t mode : {0700, 0750, 0755, 02750}) {
    set_mode(layout_.root(), mode);
    EXPECT_TRUE(check_writers(layout_, RunOwner::kTrusted).ok()) << std::oct << mode;
  }
}

TEST_F(RunAccessTest, RejectsDirectoryThatAnybodyMayWriteTo) {
  for (const mode_t mode : {0777, 01777, 0702}) {
    set_mode(layout_.root(), mode);
    for (const RunOwner owner : {RunOwner::kTrusted, RunOwner::kAny}) {
      const Status checked = check_writers(layout_, owner);
      EXPECT_EQ(exit_code_for(checked), ExitCode::kConfiguration) << std::oct << mode;
      EXPECT_THAT(checked.message(), HasSubstr("; chmod o-w " + layout_.root()));
    }
  }
}

TEST_F(RunAccessTest, RejectsFolderThatAnybodyMayWriteTo) {
  set_mode(layout_.eval_dir(), 0757);
  EXPECT_THAT(check_writers(layout_, RunOwner::kAny).message(),
              AllOf(HasSubstr(layout_.eval_dir() + ": is writable by any user (mode 0757)"),
                    HasSubstr("; chmod o-w " + layout_.eval_dir())));
}

TEST_F(RunAccessTest, RejectsDirectoryAboveThatAnybodyMayWriteTo) {
  const RunLayout below(layout_.root() + "/a/b");
  std::filesystem::create_directories(below.root());
  set_mode(below.root(), 0750);
  set_mode(layout_.root(), 0777);
  const Status checked = check_writers(below, RunOwner::kTrusted);
  EXPECT_EQ(exit_code_for(checked), ExitCode::kConfiguration);
  EXPECT_THAT(checked.message(),
              AllOf(HasSubstr(layout_.root() + ": is writable by any user (mode 0777)"),
                    HasSubstr("; chmod +t " + layout_.root() + ", or chmod o-w"),
                    HasSubstr("--set run.allow_group_access=true")));
  EXPECT_TRUE(check_writers(below, RunOwner::kAny).ok());
  // As /tmp, and as a folder of a group.
  for (const mode_t mode : {01777, 0775}) {
    set_mode(layout_.root(), mode);
    EXPECT_TRUE(check_writers(below, RunOwner::kTrusted).ok()) << std::oct << mode;
  }
}

// Also where the path itself does not name it.
TEST_F(RunAccessTest, RejectsDirectoryThatAnybodyMayWriteToBehindLink) {
  std::filesystem::create_directories(base_ / "open/run");
  set_mode(base_ / "open/run", 0750);
  std::filesystem::create_directory_symlink(base_ / "open/run", base_ / "link");
  set_mode(base_ / "open", 0777);
  EXPECT_THAT(check_writers(RunLayout(base_ / "link"), RunOwner::kTrusted).message(),
              HasSubstr("chmod +t " + (base_ / "open")));
}

TEST_F(RunAccessTest, RejectsDirectoryOfAnotherUserToTrainIn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  ASSERT_EQ(::chown(layout_.root().c_str(), 4242, 0), 0);
  EXPECT_THAT(check_writers(layout_, RunOwner::kTrusted).message(),
              HasSubstr(layout_.root() + ": belongs to uid 4242"));
  EXPECT_TRUE(check_writers(layout_, RunOwner::kAny).ok());
}

TEST_F(RunAccessTest, TrustsRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can have a directory of root";
  set_mode(base_.path(), 0755);
  set_mode(layout_.root(), 0755);
  const test::UnprivilegedUser user;
  EXPECT_TRUE(check_writers(layout_, RunOwner::kTrusted).ok());
}

// Debian's user daemon has the group daemon, the user games the group games, as users that adduser creates.
TEST_F(RunAccessTest, AcceptsPrivateGroupOfOwnerOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another group";
  set_mode(layout_.root(), 02770);
  EXPECT_TRUE(check_writers(layout_, RunOwner::kTrusted).ok()) << "root and its group";
  for (const gid_t group : {gid_t{1}, gid_t{100}}) {  // daemon, users
    ASSERT_EQ(::chown(layout_.root().c_str(), 0, group), 0);
    set_mode(layout_.root(), 0770);
    const Status checked = check_writers(layout_, RunOwner::kTrusted);
    EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument) << group;
    EXPECT_THAT(checked.message(), AllOf(HasSubstr("the members of group " + std::to_string(group)),
                                         HasSubstr("; chmod g-w " + layout_.root())));
    EXPECT_TRUE(check_writers(layout_, RunOwner::kAny).ok());
  }
}

TEST_F(RunAccessTest, AcceptsGroupThatThisMachineDoesNotKnow) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another group";
  ASSERT_EQ(::chown(layout_.root().c_str(), 0, 1000680000), 0);  // as fsGroup of Kubernetes
  set_mode(layout_.root(), 02775);
  EXPECT_TRUE(check_writers(layout_, RunOwner::kTrusted).ok());
}

}  // namespace
}  // namespace stoker::run
