// Reading files when descriptors are scarce.
#include "shared/data/files/file_reader.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::files {
namespace {

class FileReaderTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{.rlim_cur = 64, .rlim_max = before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  void TearDown() override {
    held_.clear();
    ::setrlimit(RLIMIT_NOFILE, &before_);
    FolderFixture::TearDown();
  }
  void add_file(FileTable& files, const std::string& name, const std::string& content) const {
    write(name, content);
    struct stat info {};
    EXPECT_EQ(::stat(path(name).c_str(), &info), 0);
    files.add(name,
              {.size = static_cast<uint64_t>(info.st_size),
               .mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
               .inode = info.st_ino});
  }
  // A single file containing digits.
  FileTable digits() const {
    FileTable files(root_.string());
    add_file(files, "digits", "0123456789");
    return files;
  }
  static std::string read(const FileReader& reader, size_t file, uint64_t offset, size_t count) {
    std::string bytes(count, '?');
    const Status status = reader.read(file, offset, std::as_writable_bytes(std::span(bytes)));
    return status.ok() ? bytes : status.message();
  }
  // Opens descriptors until the process has none left; false if another error occurs. Until they
  // are closed, no gtest assertion may run: UBSan checks gtest's virtual functions, which needs a
  // descriptor.
  bool take_all_descriptors() {
    for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY))
      held_.emplace_back(fd);
    return errno == EMFILE;
  }

  rlimit before_{};
  std::vector<UniqueFd> held_;
};

TEST_F(FileReaderTest, WaitsUntilDescriptorIsAvailable) {
  const FileTable files = digits();
  const FileReader reader(files);
  std::byte first{};
  std::atomic<bool> may_read{false};
  auto read = std::async(std::launch::async, [&] {
    may_read.wait(false);
    return reader.read(0, 0, {&first, 1});
  });
  const bool all_consumed = take_all_descriptors();
  may_read = true;
  may_read.notify_all();
  held_.clear();
  const Status status = read.get();
  EXPECT_TRUE(all_consumed);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(first, std::byte('0'));
}

TEST_F(FileReaderTest, ReportsErrorWhenNoDescriptorBecomesAvailable) {
  const FileTable files = digits();
  const FileReader reader(files);
  std::byte first{};
  const bool all_consumed = take_all_descriptors();
  const Status status = reader.read(0, 0, {&first, 1});
  held_.clear();
  EXPECT_TRUE(all_consumed);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("Too many open files"), std::string::npos) << status.to_string();
}

// ---- Grouped reads

TEST_F(FileReaderTest, GroupsReadsOfManyFiles) {
  FileTable files(root_.string());
  for (int file = 0; file < 100; ++file)
    add_file(files, std::to_string(file), std::to_string(1000 + file));
  const FileReader one(files), other(files);
  for (int round = 0; round < 3; ++round) {
    const FileReader::ReadsTogether together;
    for (size_t file = 0; file < 100; ++file)
      for (const FileReader* reader : {&one, &other})
        ASSERT_EQ(read(*reader, file, 0, 4), std::to_string(1000 + file));
    for (size_t file = 0; file < 300; ++file)  // a few files, repeatedly
      ASSERT_EQ(read(one, file % 3, 1, 3), std::to_string(1000 + file % 3).substr(1));
  }
  ASSERT_EQ(read(one, 0, 0, 4), "1000");
}

TEST_F(FileReaderTest, ReportsTruncatedFileInGroupedReads) {
  const FileTable files = digits();
  const FileReader reader(files);
  {
    const FileReader::ReadsTogether together;
    EXPECT_EQ(read(reader, 0, 2, 3), "234");
    std::filesystem::resize_file(path("digits"), 5);
    EXPECT_THAT(read(reader, 0, 2, 6), ::testing::HasSubstr("truncated at offset 5"));
    EXPECT_THAT(read(reader, 0, 2, 3), ::testing::HasSubstr("changed from 10 to 5 bytes"))
        << "it is opened again";
  }
  EXPECT_THAT(read(reader, 0, 2, 3), ::testing::HasSubstr("changed from 10 to 5 bytes"));
}

// The same size; only the time tells.
TEST_F(FileReaderTest, ReportsRewrittenFileAfterRead) {
  const FileTable files = digits();
  const FileReader reader(files);
  EXPECT_EQ(read(reader, 0, 0, 4), "0123");
  write("digits", "9876543210");
  age("digits", 2);
  EXPECT_THAT(read(reader, 0, 0, 4), ::testing::HasSubstr("modified since it was indexed"));
  EXPECT_THAT(read(reader, 0, 0, 4), ::testing::HasSubstr("modified since it was indexed"))
      << "it is opened again";
}

TEST_F(FileReaderTest, ReportsRewrittenFileAfterGroupedReads) {
  FileTable files(root_.string());
  for (int file = 0; file < 6; ++file) add_file(files, std::to_string(file), "0123456789");
  const FileReader reader(files);
  const FileReader::ReadsTogether together;
  for (size_t file = 0; file < 6; ++file) EXPECT_EQ(read(reader, file, 0, 4), "0123");
  EXPECT_TRUE(together.check().ok());
  write("2", "9876543210");
  age("2", 2);
  write("5", "9876543210");  // more files than are compared together
  age("5", 2);
  EXPECT_EQ(read(reader, 2, 0, 4), "9876") << "compared by check()";
  EXPECT_THAT(together.check().message(), ::testing::HasSubstr("modified since it was indexed"));
  EXPECT_THAT(read(reader, 5, 0, 4), ::testing::HasSubstr("modified since it was indexed"));
}

TEST_F(FileReaderTest, ReportsRewrittenFileAfterPrefetch) {
  const FileTable files = digits();
  const FileReader reader(files);
  std::vector<std::byte> whole;
  MemoryBudget budget(1000);
  PrefetchedBytes before(budget), after(budget);
  reader.prefetch(0, 0, 4, before);
  write("digits", "9876543210");
  age("digits", 2);
  reader.prefetch(0, 0, 4, after);
  reader.prefetch_whole(0, 100, after);
  {
    const PrefetchedBytes::Held held(&before);
    EXPECT_EQ(read(reader, 0, 0, 4), "0123") << "of the indexed file";
  }
  const PrefetchedBytes::Held held(&after);
  EXPECT_THAT(read(reader, 0, 0, 4), ::testing::HasSubstr("modified since it was indexed"));
  EXPECT_THAT(reader.read_whole(0, 100, whole).message(),
              ::testing::HasSubstr("modified since it was indexed"));
}

TEST_F(FileReaderTest, ReportsFileThatReplacedIndexedOne) {
  const FileTable files = digits();
  const FileReader reader(files);
  const auto time = std::filesystem::last_write_time(path("digits"));
  write("other", "9876543210");
  std::filesystem::last_write_time(path("other"), time);
  std::filesystem::rename(path("other"), path("digits"));
  EXPECT_THAT(read(reader, 0, 0, 4), ::testing::HasSubstr("replaced by another file"));
}

}  // namespace
}  // namespace stoker::data::files
