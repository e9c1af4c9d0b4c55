#include "shared/base/log_file.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

using ::testing::HasSubstr;

// write() fails behind the first `bytes` bytes of a file, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, default_action_);
  }

 private:
  rlimit before_{};
  void (*const default_action_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

class LogFileTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kRotateBytes = 100;

  LogFile open(int keep_files = 2) {
    auto log = LogFile::open(path(), kRotateBytes, keep_files);
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    return *std::move(log);
  }
  std::string path(const std::string& name = "test.log") const { return folder_ / name; }
  std::string text(const std::string& name = "test.log") const {
    const auto bytes = read_file(path(name), 1 << 20);
    return bytes.ok() ? *bytes : bytes.status().message();
  }
  static std::string line(char character) { return std::string(59, character) + "\n"; }

  const test::TemporaryDirectory folder_;
};

// As logrotate does with copytruncate.
TEST_F(LogFileTest, ContinuesFileThatOthersTruncate) {
  LogFile log = open();
  ASSERT_TRUE(log.append(line('a')).ok());
  ASSERT_EQ(::truncate(path().c_str(), 0), 0);
  ASSERT_TRUE(log.append(line('b')).ok());
  EXPECT_EQ(text(), line('b'));
  EXPECT_FALSE(std::filesystem::exists(path("test.1.log"))) << "there was room for the line";
  ASSERT_TRUE(log.append(line('c')).ok());
  EXPECT_EQ(text(), line('c'));
  EXPECT_EQ(text("test.1.log"), line('b'));
}

// As logrotate does without copytruncate.
TEST_F(LogFileTest, StartsNewFileWhenOthersMoveOrRemoveIt) {
  LogFile log = open();
  ASSERT_TRUE(log.append("one\n").ok());
  std::filesystem::rename(path(), path("test.log-20260131"));
  ASSERT_TRUE(log.append("two\n").ok());
  EXPECT_EQ(text("test.log-20260131"), "one\n");
  EXPECT_EQ(text(), "two\n");
  std::filesystem::rename(path(), path("test.log-20260201"));
  test::write_whole(path(), "");  // with the option create
  ASSERT_TRUE(log.append("three\n").ok());
  EXPECT_EQ(text(), "three\n");
  std::filesystem::remove(path());
  ASSERT_TRUE(log.append("four\n").ok());
  EXPECT_EQ(text(), "four\n");
}

TEST_F(LogFileTest, DoesNotFollowLinkInPlaceOfMovedFile) {
  test::write_whole(path("other"), "kept");
  LogFile log = open();
  ASSERT_TRUE(log.append("one\n").ok());
  std::filesystem::rename(path(), path("moved.log"));
  ASSERT_EQ(::symlink(path("other").c_str(), path().c_str()), 0);
  ASSERT_TRUE(log.append("two\n").ok());
  EXPECT_EQ(text("other"), "kept");
  EXPECT_EQ(text("moved.log"), "one\ntwo\n");
}

TEST_F(LogFileTest, RemovesPartOfLineFromTruncatedFile) {
  LogFile log = open();
  ASSERT_TRUE(log.append("one\ntwo\n").ok());
  ASSERT_EQ(::truncate(path().c_str(), 4), 0);
  Status written;
  {
    const FileSizeLimit limit(30);
    written = log.append(line('a'));
  }
  EXPECT_EQ(written.message(), "write: File too large");
  EXPECT_EQ(text(), "one\n");
  EXPECT_TRUE(log.append(line('b')).ok());
  EXPECT_EQ(text(), "one\n" + line('b'));
}

TEST_F(LogFileTest, RotatesInPlaceOfWhatHasNameOfNextFile) {
  test::write_whole(path("other"), "kept");
  LogFile log = open();
  ASSERT_EQ(::symlink(path("other").c_str(), path("test.log.new").c_str()), 0);
  ASSERT_TRUE(log.append(line('a')).ok());
  ASSERT_TRUE(log.append(line('b')).ok());
  ASSERT_EQ(::mkfifo(path("test.log.new").c_str(), 0600), 0);
  ASSERT_TRUE(log.append(line('c')).ok());
  EXPECT_EQ(text("other"), "kept");
  EXPECT_EQ(text(), line('c'));
  EXPECT_EQ(text("test.1.log"), line('b'));
  EXPECT_EQ(text("test.2.log"), line('a'));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path())));
}

TEST_F(LogFileTest, MovesOlderFilesBackIfItCannotRotate) {
  // A mount point cannot be renamed.
  std::filesystem::create_directory(path("test.1.log"));
  if (::mount("tmpfs", path("test.1.log").c_str(), "tmpfs", 0, "size=16k") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs here";
  test::write_whole(path("test.2.log"), "old");
  test::write_whole(path("test.3.log"), "older");
  {
    LogFile log = open(4);
    for (const char character : {'a', 'b', 'c', 'd'}) EXPECT_TRUE(log.append(line(character)).ok());
  }
  EXPECT_EQ(::umount2(path("test.1.log").c_str(), MNT_DETACH), 0);
  EXPECT_EQ(text(), line('a') + line('b') + line('c') + line('d'));
  EXPECT_EQ(text("test.2.log"), "old");
  EXPECT_EQ(text("test.3.log"), "older");
  EXPECT_FALSE(std::filesystem::exists(path("test.4.log")));
  EXPECT_FALSE(std::filesystem::exists(path("test.log.new")));
}

TEST_F(LogFileTest, ReportsWhyThereIsNoDirectory) {
  test::write_whole(path("file"), "");
  const auto log = LogFile::open(path("file/logs/test.log"), kRotateBytes, 2);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), StatusCode::kIoError);
  EXPECT_THAT(log.status().message(), HasSubstr(path("file") + ": exists but is not a directory"));
}

}  // namespace
}  // namespace stoker
