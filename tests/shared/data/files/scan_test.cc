#include "shared/data/files/scan.h"

#include <sys/socket.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::data::files {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScanTest : public testing::FolderFixture {
 protected:
  Result<FolderScan> scan(const std::string& glob = "**/*") {
    return scan_folder(path("data"), *PathGlob::parse(glob), {});
  }
  std::vector<std::string> names(const std::string& glob = "**/*") {
    const auto found = scan(glob);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    std::vector<std::string> names;
    for (size_t file = 0; found.ok() && file < found->files.size(); ++file)
      names.emplace_back(found->files.name(file));
    return names;
  }
};

TEST_F(ScanTest, SortsPathsAsTreeByBytes) {
  for (const char* name : {"b", "a/z", "a-b/x", "a/b/c", "B", "a/\xc3\xa4"})
    write(std::string("data/") + name, "x");
  EXPECT_THAT(names(), ElementsAre("B", "a/b/c", "a/z", "a/\xc3\xa4", "a-b/x", "b"));
}

TEST_F(ScanTest, RecordsSizesAndModificationTimes) {
  write("data/a", "12345");
  const auto found = scan();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->files.stamp(0).size, 5u);
  EXPECT_GT(found->files.stamp(0).mtime_ns, 1'500'000'000'000'000'000);
  EXPECT_EQ(found->files.path(0), path("data/a"));
}

TEST_F(ScanTest, EntersOnlyFoldersMatchedByGlob) {
  for (const char* name : {"a.h", "a.cc", "sub/b.h", ".hidden/c.h", "sub/.d.h"})
    write(std::string("data/") + name, "x");
  EXPECT_THAT(names("**/*.h"), ElementsAre("a.h", "sub/b.h"));
  EXPECT_THAT(names("*.h"), ElementsAre("a.h"));
}

TEST_F(ScanTest, IgnoresSymlinkLoopsSpecialFilesAndDanglingSymlinks) {
  write("data/sub/a", "x");
  std::filesystem::create_directory_symlink("..", path("data/sub/up"));
  std::filesystem::create_symlink("self", path("data/self"));
  std::filesystem::create_symlink("nowhere", path("data/dangling"));
  std::filesystem::create_symlink("/dev/zero", path("data/device"));
  ASSERT_EQ(::mkfifo(path("data/fifo").c_str(), 0600), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(names(), ElementsAre("sub/a"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("symlink_loops=2"));
  EXPECT_THAT(log, HasSubstr("dangling_symlinks=1"));
  EXPECT_THAT(log, HasSubstr("non_regular_files=2"));
}

TEST_F(ScanTest, FollowsSymlinksToFilesAndFolders) {
  write("elsewhere/a", "x");
  std::filesystem::create_directory(path("data"));
  std::filesystem::create_directory_symlink(path("elsewhere"), path("data/folder"));
  std::filesystem::create_symlink(path("elsewhere/a"), path("data/file"));
  EXPECT_THAT(names(), ElementsAre("file", "folder/a"));
}

TEST_F(ScanTest, ReportsFoldersWithoutFiles) {
  write("data/full/deep/a", "x");
  std::filesystem::create_directories(path("data/empty/deep"));
  std::filesystem::create_directory_symlink("..", path("data/empty/loop"));
  std::filesystem::create_directory_symlink(".", path("data/loop"));
  const auto found = scan();
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(found->barren, ElementsAre("empty"));
}

TEST_F(ScanTest, RejectsTooDeepFolders) {
  std::string deep = "data";
  for (int i = 0; i < 200; ++i) deep += "/d";
  write(deep + "/a", "x");
  EXPECT_EQ(scan().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ScanTest, ReportsProgress) {
  write("data/a", "x");
  write("data/b", "x");
  uint64_t last = 0;
  const auto found = scan_folder(path("data"), *PathGlob::parse("**/*"),
                                 [&last](uint64_t files, std::string_view) { last = files; });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(last, 2u);
}

TEST_F(ScanTest, ReportsUnreadableFolderOrFile) {
  using std::filesystem::perms;
  write("data/sub/a", "x");
  std::filesystem::permissions(path(""), perms{0755});
  const auto expect_rejected = [&](const std::string& name) {
    SCOPED_TRACE(name);
    const test::UnprivilegedUser user;
    const Status status = scan().status();
    EXPECT_EQ(status.code(), StatusCode::kPermission);
    EXPECT_THAT(status.message(), HasSubstr(path(name)));
  };
  std::filesystem::permissions(path("data/sub"), perms::none);
  expect_rejected("data/sub");
  std::filesystem::permissions(path("data/sub"), perms{0755});
  std::filesystem::permissions(path("data/sub/a"), perms::none);
  expect_rejected("data/sub/a");
  std::filesystem::permissions(path("data/sub/a"), perms{0644});
  const test::UnprivilegedUser user;
  EXPECT_TRUE(scan().ok()) << "the permissions were the only reason";
}

}  // namespace
}  // namespace stoker::data::files
