#include "shared/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/forwarding_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker {
namespace {

class FileTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_ / name; }

  const test::TemporaryDirectory directory_;
};

TEST_F(FileTest, ReplacesFileAtomicallyWithoutLeftovers) {
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("a"), "old").ok());
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("a"), "new").ok());
  EXPECT_EQ(*read_file(path("a"), 100), "new");
  EXPECT_EQ(list_directory(directory_.path())->size(), 1u);
}

TEST_F(FileTest, PreservesOldContentWhenAtomicWriteFails) {
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("a"), "old").ok());
  class NoSync final : public test::ForwardingFiles {
   public:
    Status sync(int, const std::string& p) override {
      return Status::from_errno(EIO, "fsync " + p);
    }
  } files;
  EXPECT_EQ(write_file_atomically(files, path("a"), "new").code(), StatusCode::kIoError);
  EXPECT_EQ(*read_file(path("a"), 100), "old");
  EXPECT_EQ(list_directory(directory_.path())->size(), 1u);
}

TEST_F(FileTest, RejectsReadOfOversizedOrNonregularFile) {
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("a"), "12345").ok());
  EXPECT_EQ(read_file(path("a"), 4).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_file(directory_.path(), 4).status().code(), StatusCode::kInvalidArgument);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(read_file(path("fifo"), 4).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read_file(path("none"), 4).status().code(), StatusCode::kNotFound);
}

// A file of any size takes no space on the disk.
TEST_F(FileTest, ReadsNoLinesOfHugeSparseFile) {
  test::write_whole(path("a"), "line\n");
  const auto ignore = [](const FileLine&) { return Status(); };
  EXPECT_TRUE(for_each_line(path("a"), 800, ignore).ok());
  ASSERT_EQ(::truncate(path("a").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(for_each_line(path("a"), 800, ignore).code(), StatusCode::kInvalidArgument);
}

TEST_F(FileTest, ReadsLinesInBlocks) {
  std::string text;
  std::vector<std::string> expected;
  for (size_t i = 0; i < 3000; ++i) {
    expected.emplace_back(i * 7 % 1000, static_cast<char>('a' + i % 26));
    text += expected.back() + "\n";
  }
  text += "without an end";
  test::write_whole(path("a"), text);
  std::vector<std::string> lines;
  std::vector<bool> are_complete;
  uint64_t end = 0;
  ASSERT_TRUE(for_each_line(path("a"), 800, [&](const FileLine& line) {
                EXPECT_EQ(line.begin, end);
                end = line.end;
                lines.emplace_back(line.text);
                are_complete.push_back(line.is_complete);
                return Status();
              }).ok());
  EXPECT_EQ(end, text.size());
  ASSERT_EQ(lines.size(), expected.size() + 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(lines[i], expected[i].substr(0, 800)) << i;
    EXPECT_TRUE(are_complete[i]);
  }
  EXPECT_EQ(lines.back(), "without an end");
  EXPECT_FALSE(are_complete.back());
  size_t count = 0;
  const auto stop = [&](const FileLine&) {
    return ++count < 5 ? Status() : Status(StatusCode::kCancelled, "enough");
  };
  EXPECT_EQ(for_each_line(path("a"), 800, stop).code(), StatusCode::kCancelled);
  EXPECT_EQ(count, 5u);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(for_each_line(path("fifo"), 4, stop).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(for_each_line(path("none"), 4, stop).code(), StatusCode::kNotFound);
}

TEST_F(FileTest, RejectsRenameNoReplaceWhenTargetExists) {
  ASSERT_TRUE(default_file_system().make_directory(path("a")).ok());
  ASSERT_TRUE(default_file_system().make_directory(path("b")).ok());
  EXPECT_EQ(default_file_system().rename_noreplace(path("a"), path("b")).code(),
            StatusCode::kAlreadyExists);
  EXPECT_TRUE(default_file_system().rename_noreplace(path("a"), path("c")).ok());
}

TEST_F(FileTest, ReportsBlockingFileWhenCreatingDirectories) {
  ASSERT_TRUE(make_directories(default_file_system(), path("x/y/z")).ok());
  EXPECT_TRUE(std::filesystem::is_directory(path("x/y/z")));
  std::ofstream(path("file")) << "x";
  const Status status = make_directories(default_file_system(), path("file/y"));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(path("file")), std::string::npos);
}

TEST_F(FileTest, RemovesTreeWithoutFollowingSymlinks) {
  ASSERT_TRUE(make_directories(default_file_system(), path("keep")).ok());
  std::ofstream(path("keep/precious")) << "x";
  ASSERT_TRUE(make_directories(default_file_system(), path("tree")).ok());
  std::filesystem::create_directory_symlink(path("keep"), path("tree/link"));
  ASSERT_TRUE(default_file_system().remove_tree(path("tree")).ok());
  EXPECT_TRUE(std::filesystem::exists(path("keep/precious")));
  EXPECT_TRUE(default_file_system().remove_tree(path("missing")).ok());
}

TEST_F(FileTest, HoldsLockUntilProcessIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = lock_file(path("LOCK"), "pid=1 since=now");
    [[maybe_unused]] const ssize_t reported = ::write(ready[1], lock.ok() ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const auto second = lock_file(path("LOCK"), "me");
  EXPECT_EQ(second.status().code(), StatusCode::kBusy);
  EXPECT_NE(second.status().message().find("pid=1 since=now"), std::string::npos);
  EXPECT_TRUE(*is_locked(path("LOCK")));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(*is_locked(path("LOCK")));
  EXPECT_TRUE(lock_file(path("LOCK"), "me").ok());
  EXPECT_FALSE(*is_locked(path("no such file")));
}

TEST_F(FileTest, LocksNoSpecialFileAndDoesNotWaitForIt) {
  ASSERT_EQ(::mkfifo(path("LOCK").c_str(), 0600), 0);
  EXPECT_EQ(is_locked(path("LOCK")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(lock_file(path("LOCK"), "me").status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(is_locked(directory_.path()).ok());
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("other"), "kept").ok());
  ASSERT_EQ(::symlink(path("other").c_str(), path("link").c_str()), 0);
  EXPECT_FALSE(lock_file(path("link"), "me").ok());
  EXPECT_EQ(*read_file(path("other"), 100), "kept");
}

TEST_F(FileTest, RemovesOnlyTemporaryFiles) {
  for (const char* name :
       {".config.yaml.tmp-0123456789abcdef", "config.yaml", ".tmp-step-000000001", ".hidden",
        ".notes.tmp-mine", ".tmp-5", ".tmp-0123456789abcdef", ".thesis.docx.tmp-0123abc",
        ".a.tmp-0123456789abcdef0", ".a.tmp-0123456789ABCDEF", "a.tmp-0123456789abcdef"})
    ASSERT_TRUE(write_file_atomically(default_file_system(), path(name), "x").ok());
  ASSERT_TRUE(remove_temporary_files(default_file_system(), path("")).ok());
  EXPECT_EQ(*list_directory(path("")),
            (std::vector<std::string>{".a.tmp-0123456789ABCDEF", ".a.tmp-0123456789abcdef0",
                                      ".hidden", ".notes.tmp-mine", ".thesis.docx.tmp-0123abc",
                                      ".tmp-0123456789abcdef", ".tmp-5", ".tmp-step-000000001",
                                      "a.tmp-0123456789abcdef", "config.yaml"}));
  const std::string temporary = temporary_path(path("config.yaml"));
  ASSERT_TRUE(write_file_atomically(default_file_system(), temporary, "x").ok());
  ASSERT_TRUE(remove_temporary_files(default_file_system(), path("")).ok());
  EXPECT_FALSE(std::filesystem::exists(temporary));
}

}  // namespace
}  // namespace stoker
