#include "shared/base/trusted_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// file is a/b/code.so in a new directory.
class TrustedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "a/b");
    std::ofstream(file()) << "code";
    for (const char* const name : {"/a", "/a/b", "/a/b/code.so"}) set_mode(name, 0755);
    const auto found = trusted_file(file());
    if (!found.ok()) GTEST_SKIP() << "TMPDIR is not trusted: " << found.status().message();
    EXPECT_EQ(*found, file());
  }

  std::string file() const { return root_ / "a/b/code.so"; }
  void set_mode(const std::string& name, mode_t mode) {
    ASSERT_EQ(::chmod((root_.path() + name).c_str(), mode), 0) << name;
  }
  static std::string error_of(const std::string& path) {
    const auto found = trusted_file(path);
    if (found.ok()) return "trusted";
    EXPECT_EQ(found.status().code(), StatusCode::kPermission) << found.status().to_string();
    return found.status().message();
  }

  const test::TemporaryDirectory root_;
};

TEST_F(TrustedFileTest, ResolvesLinksAndRelativePaths) {
  fs::create_directory_symlink("b", root_ / "a/link");
  fs::create_symlink(root_ / "a/link/code.so", root_ / "link.so");
  const auto found = trusted_file(fs::relative(root_ / "a/../link.so").string());
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(*found, file());
}

TEST_F(TrustedFileTest, RejectsFileWritableByGroupOrOthersWithCommand) {
  set_mode("/a/b/code.so", 0664);
  EXPECT_THAT(error_of(file()),
              AllOf(HasSubstr("is writable by its group"), HasSubstr("chmod g-w " + file())));
  set_mode("/a/b/code.so", 0646);
  EXPECT_THAT(error_of(file()),
              AllOf(HasSubstr("is writable by any user"), HasSubstr("chmod o-w " + file())));
  set_mode("/a/b/code.so", 0666);
  EXPECT_THAT(error_of(file()), HasSubstr("chmod go-w " + file()));
}

TEST_F(TrustedFileTest, RejectsWritableAncestorAndNamesIt) {
  for (const std::string name : {"", "/a", "/a/b"}) {
    set_mode(name, 0775);
    EXPECT_THAT(error_of(file()),
                AllOf(HasSubstr("writable by its group, " + root_.path() + name + ","),
                      testing::EndsWith("chmod g-w " + root_.path() + name)));
    set_mode(name, 0777);
    EXPECT_THAT(error_of(file()),
                AllOf(HasSubstr("writable by any user, " + root_.path() + name + ","),
                      testing::EndsWith("chmod go-w " + root_.path() + name)));
    set_mode(name, 0755);
  }
  EXPECT_EQ(error_of(file()), "trusted");
}

TEST_F(TrustedFileTest, RejectsWritableDirectoryOfLink) {
  fs::create_directories(root_ / "shared");
  fs::create_symlink(file(), root_ / "shared/link.so");
  set_mode("/shared", 0777);
  EXPECT_THAT(error_of(root_ / "shared/link.so"), HasSubstr("chmod go-w " + root_ / "shared"));
}

TEST_F(TrustedFileTest, AcceptsFileButNotLinkInStickyDirectory) {
  set_mode("/a/b", 01777);
  EXPECT_EQ(error_of(file()), "trusted");
  fs::create_symlink(file(), root_ / "a/b/link.so");
  EXPECT_THAT(error_of(root_ / "a/b/link.so"),
              HasSubstr(root_ / "a/b/link.so is a symlink, and any user can create one"));
  fs::create_directories(root_ / "c");
  set_mode("/c", 01777);
  fs::create_directory_symlink(root_ / "a/b", root_ / "c/link");
  EXPECT_THAT(error_of(root_ / "c/link/code.so"), HasSubstr("/c/link is a symlink"));
}

TEST_F(TrustedFileTest, RejectsFileOrDirectoryOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  for (const std::string name : {"/a/b/code.so", "/a/b", "/a"}) {
    ASSERT_EQ(::chown((root_.path() + name).c_str(), 4242, 4242), 0);
    EXPECT_THAT(error_of(file()), HasSubstr("to uid 4242")) << name;
    const std::string named = name == "/a/b/code.so" ? "belongs to" : root_.path() + name + ",";
    EXPECT_THAT(error_of(file()), HasSubstr(named));
    ASSERT_EQ(::chown((root_.path() + name).c_str(), 0, 0), 0);
  }
  // As /tmp with a file of another user.
  set_mode("/a/b", 01777);
  ASSERT_EQ(::chown(file().c_str(), 4242, 4242), 0);
  EXPECT_THAT(error_of(file()), HasSubstr("belongs to uid 4242"));
}

TEST_F(TrustedFileTest, ReportsMissingFilesDirectoriesAndLoops) {
  EXPECT_EQ(trusted_file(root_ / "missing.so").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(trusted_file(file() + "/x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(trusted_file("").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(trusted_file(root_ / "a").status().code(), StatusCode::kInvalidArgument);
  fs::create_symlink("loop", root_ / "loop");
  EXPECT_EQ(trusted_file(root_ / "loop").status().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace stoker
