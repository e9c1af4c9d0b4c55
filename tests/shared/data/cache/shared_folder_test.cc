// One user's view of a shared folder: what is opened, what is created and with which permissions.
// Several users and hosts: tests/hostile/shared_cache_test.cc.
#include "shared/data/cache/shared_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::cache {
namespace {

using Access = SharedFolder::Access;
using Incomplete = SharedFolder::Incomplete;
using ::testing::HasSubstr;

class SharedFolderFileTest : public ::testing::TestWithParam<Incomplete> {
 protected:
  SharedFolder folder() const {
    auto opened = SharedFolder::open(directory_.path());
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return *std::move(opened);
  }
  Status create(const std::string& name, Access access, const std::string& text) const {
    const auto write = [&](int fd, const std::string& path) {
      return default_file_system().write(fd, std::as_bytes(std::span(text)), path);
    };
    return folder().create_file(name, access, write, GetParam());
  }
  std::string text_of(const std::string& name) const {
    const auto text = read_file(directory_ / name, 1 << 20);
    return text.ok() ? *text : text.status().to_string();
  }
  std::vector<std::string> names() const { return *list_directory(directory_.path()); }
  mode_t mode_of(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat((directory_ / name).c_str(), &info), 0) << name;
    return info.st_mode & 07777;
  }
  void set_mode(const std::string& name, mode_t mode) const {
    ASSERT_EQ(::chmod((directory_ / name).c_str(), mode), 0) << name;
  }
  const test::TemporaryDirectory directory_;
};

TEST_P(SharedFolderFileTest, CreatesCompleteFileAndNeverReplacesOne) {
  ASSERT_TRUE(create("file", Access::kRead, "first").ok());
  EXPECT_EQ(create("file", Access::kRead, "second").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(text_of("file"), "first");
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

TEST_P(SharedFolderFileTest, LeavesNothingWhenWritingFails) {
  const Status full(StatusCode::kNoSpace, "the disk is full");
  EXPECT_EQ(
      folder()
          .create_file(
              "file", Access::kRead, [&](int, const std::string&) { return full; }, GetParam())
          .code(),
      StatusCode::kNoSpace);
  EXPECT_TRUE(names().empty());
}

TEST_P(SharedFolderFileTest, GivesFilesWhatFolderPermits) {
  const mode_t umask_before = ::umask(077);
  for (const auto& [folder, read, update] : {std::tuple<mode_t, mode_t, mode_t>{0700, 0600, 0600},
                                             {0750, 0640, 0640},
                                             {02770, 0640, 0660},
                                             {02775, 0644, 0664},
                                             {01777, 0644, 0644}}) {
    SCOPED_TRACE(folder);
    set_mode("", folder);
    ASSERT_TRUE(create("read", Access::kRead, "x").ok());
    ASSERT_TRUE(create("update", Access::kUpdate, "x").ok());
    EXPECT_EQ(mode_of("read"), read);
    EXPECT_EQ(mode_of("update"), update);
    EXPECT_TRUE(this->folder().open_file("update", Access::kUpdate).ok());
    for (const char* name : {"read", "update"}) ASSERT_TRUE(this->folder().remove_file(name).ok());
  }
  ::umask(umask_before);
}

TEST_P(SharedFolderFileTest, OpensNoLinkAndNoFileThatOthersMayChange) {
  ASSERT_TRUE(create("file", Access::kRead, "samples").ok());
  ASSERT_EQ(::symlink("file", (directory_ / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((directory_ / "fifo").c_str(), 0600), 0);
  for (const char* name : {"link", "fifo"}) {
    const Status status = folder().open_file(name, Access::kRead).status();
    EXPECT_EQ(status.code(), StatusCode::kPermission) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("is not a regular file"));
  }
  set_mode("file", 0602);
  EXPECT_THAT(folder().open_file("file", Access::kRead).status().message(),
              HasSubstr("may be changed by users who may not write to the folder"));
  set_mode("file", 0660);
  EXPECT_FALSE(folder().open_file("file", Access::kRead).ok());
  set_mode("", 02770);
  EXPECT_TRUE(folder().open_file("file", Access::kRead).ok());
  EXPECT_EQ(folder().open_file("no such file", Access::kRead).status().code(),
            StatusCode::kNotFound);
}

TEST_P(SharedFolderFileTest, RemovesLeftoversOfDeadProcessesOnly) {
  test::write_whole(directory_ / ".files-1.packed.incomplete-00112233", "half of a pack");
  test::write_whole(directory_ / ".paused.json.tmp-00112233", "of another part of the program");
  ASSERT_EQ(::symlink("precious", (directory_ / ".files-2.packed.incomplete-1").c_str()), 0);
  test::write_whole(directory_ / "precious", "x");
  const auto write = [&](int fd, const std::string& path) {
    folder().remove_leftovers();  // as another process that starts meanwhile
    return default_file_system().write(fd, std::as_bytes(std::span("whole", 5)), path);
  };
  ASSERT_TRUE(folder().create_file("file", Access::kRead, write, GetParam()).ok());
  EXPECT_EQ(text_of("file"), "whole");
  EXPECT_EQ(names(), (std::vector<std::string>{".files-2.packed.incomplete-1",
                                               ".paused.json.tmp-00112233", "file", "precious"}));
}

INSTANTIATE_TEST_SUITE_P(Incomplete, SharedFolderFileTest,
                         ::testing::Values(Incomplete::kUnnamed, Incomplete::kNamed),
                         [](const auto& test) {
                           return std::string(test.param == Incomplete::kNamed ? "Named"
                                                                               : "Unnamed");
                         });

TEST(SharedFolderTest, GivesGroupAccessToFoldersBelowSetgidFolder) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::chmod(directory.path().c_str(), 02775), 0);
  ASSERT_TRUE(SharedFolder::open_or_create(directory / "a/b").ok());
  ASSERT_TRUE(SharedFolder::open_or_create(directory / "a/b").ok());
  for (const char* name : {"a", "a/b"}) {
    struct stat info {};
    ASSERT_EQ(::stat((directory / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 02775u) << name;
  }
}

TEST(SharedFolderTest, LockTruncatesNoOtherFile) {
  const test::TemporaryDirectory directory;
  test::write_whole(directory / "precious", "precious");
  ASSERT_EQ(::link((directory / "precious").c_str(), (directory / "CACHE_LOCK").c_str()), 0);
  const auto folder = SharedFolder::open(directory.path());
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->lock().status().code(), StatusCode::kPermission);
  EXPECT_EQ(*read_file(directory / "precious", 100), "precious");
}

}  // namespace
}  // namespace stoker::data::cache
