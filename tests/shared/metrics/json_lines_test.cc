#include "shared/metrics/json_lines.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/shared/metrics/failing_files.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::metrics {
namespace {

class JsonLinesFileTest : public ::testing::Test {
 protected:
  void SetUp() override { path_ = directory_ / "train.jsonl"; }

  void write_content(std::string_view content) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }
  std::string content() { return *read_file(path_, 16 << 20); }
  std::unique_ptr<JsonLinesFile> open() {
    auto file = JsonLinesFile::open(default_file_system(), path_);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *std::move(file) : nullptr;
  }
  static MetricsRecord make_record(uint64_t step) {
    return MetricsRecord().add("step", step).add("loss", 1.0 / 3);
  }
  void append_steps(uint64_t from, uint64_t to) {
    auto file = open();
    for (uint64_t step = from; step <= to; ++step)
      ASSERT_TRUE(file->append(make_record(step)).ok());
  }
  std::vector<uint64_t> steps() {
    std::vector<uint64_t> found;
    const auto read = read_records(path_);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    for (const MetricsRecord& row : read->records)
      found.push_back(row.find_count("step").value_or(0));
    return found;
  }

  const test::TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(JsonLinesFileTest, KeepsSyncedRecordsOfNewFileAfterPowerCut) {
  test::FaultyFiles files(directory_.path());
  {
    auto file = JsonLinesFile::open(files, path_);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE((*file)->append(make_record(1)).ok());
    ASSERT_TRUE((*file)->sync().ok());
  }
  const std::string after = directory_.path() + "-after";
  files.simulate_power_loss(files.operations().size(), test::Survival::kNothing, 1, after);
  const auto read = read_records(after + "/train.jsonl");
  std::filesystem::remove_all(after);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->records.size(), 1u);
}

TEST_F(JsonLinesFileTest, AppendsCompleteLinesAndCountsBytes) {
  auto file = open();
  EXPECT_EQ(file->size(), 0u);
  ASSERT_TRUE(file->append(make_record(1)).ok());
  ASSERT_TRUE(file->append_line(R"({"step":2})").ok());
  EXPECT_EQ(content(), to_json(make_record(1)) + "\n{\"step\":2}\n");
  EXPECT_EQ(file->size(), content().size());
}

TEST_F(JsonLinesFileTest, AppendsAfterReopen) {
  append_steps(1, 2);
  append_steps(3, 4);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST_F(JsonLinesFileTest, RemovesPartialLastLineOnOpen) {
  for (const char* has_partial_line : {"{", "{\"step\":3", "{\"step\":3}"}) {
    write_content(std::string("{\"step\":1}\n{\"step\":2}\n") + has_partial_line);
    const auto read = read_records(path_);
    ASSERT_TRUE(read.ok());
    EXPECT_TRUE(read->has_partial_line);
    EXPECT_EQ(read->records.size(), 2u);
    EXPECT_EQ(open()->size(), 22u);
    EXPECT_EQ(content(), "{\"step\":1}\n{\"step\":2}\n");
  }
}

TEST_F(JsonLinesFileTest, TruncatesFileThatIsOnePartialLine) {
  write_content("{\"step");
  EXPECT_EQ(open()->size(), 0u);
}

TEST_F(JsonLinesFileTest, RemovesTrailingZerosAfterPowerLoss) {
  write_content("{\"step\":1}\n" + std::string(5000, '\0'));
  EXPECT_EQ(open()->size(), 11u);
}

TEST_F(JsonLinesFileTest, RejectsForeignFileWithoutChangingIt) {
  write_content(std::string(3 << 20, 'x'));
  EXPECT_EQ(JsonLinesFile::open(default_file_system(), path_).status().code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(content().size(), 3u << 20);
}

TEST_F(JsonLinesFileTest, RejectsDirectoryFifoAndSymlink) {
  EXPECT_FALSE(JsonLinesFile::open(default_file_system(), directory_.path()).ok());
  const std::string fifo = directory_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(JsonLinesFile::open(default_file_system(), fifo).ok());
  std::filesystem::create_symlink("/dev/null", path_);
  EXPECT_FALSE(JsonLinesFile::open(default_file_system(), path_).ok());
}

TEST_F(JsonLinesFileTest, ContainsOnlyCompleteLinesAfterKilledWriter) {
  for (int round = 0; round < 10; ++round) {
    int started[2];
    ASSERT_EQ(::pipe(started), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto file = JsonLinesFile::open(default_file_system(), path_);
      (void)!::write(started[1], "1", 1);
      for (uint64_t step = 0; file.ok(); ++step) (void)(*file)->append(make_record(step));
      ::_exit(1);
    }
    char byte = 0;
    ASSERT_EQ(::read(started[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(started[0]);
    ::close(started[1]);
    ASSERT_NE(open(), nullptr);
    const auto read = read_records(path_);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_FALSE(read->has_partial_line);
  }
}

TEST_F(JsonLinesFileTest, PreservesFileOnFullDisk) {
  FailingFileSystem files;
  auto opened = JsonLinesFile::open(files, path_);
  ASSERT_TRUE(opened.ok());
  JsonLinesFile& file = **opened;
  ASSERT_TRUE(file.append(make_record(1)).ok());
  const std::string before = content();
  files.fail_after_bytes(5);
  EXPECT_EQ(file.append(make_record(2)).code(), StatusCode::kNoSpace);
  EXPECT_EQ(content(), before);
  EXPECT_EQ(file.size(), before.size());
  files.repair();
  ASSERT_TRUE(file.append(make_record(3)).ok());
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 3}));
}

TEST_F(JsonLinesFileTest, RemovesRecordsOfLaterSteps) {
  append_steps(1, 9);
  auto file = open();
  EXPECT_EQ(*file->truncate_after_step(100), 0u);
  EXPECT_EQ(*file->truncate_after_step(9), 0u);
  EXPECT_EQ(*file->truncate_after_step(6), 3u);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(file->append(make_record(7)).ok());
  EXPECT_EQ(steps().back(), 7u);
  EXPECT_EQ(*file->truncate_after_step(0), 7u);
  EXPECT_EQ(content(), "");
}

TEST_F(JsonLinesFileTest, RemovesRecordsAcrossManyBlocks) {
  std::string many;
  for (uint64_t step = 1; step <= 40000; ++step) many += to_json(make_record(step)) + "\n";
  ASSERT_GT(many.size(), 1u << 20);
  write_content(many);
  auto file = open();
  EXPECT_EQ(*file->truncate_after_step(123), 40000u - 123);
  EXPECT_EQ(steps().size(), 123u);
  EXPECT_EQ(steps().back(), 123u);
}

TEST_F(JsonLinesFileTest, ChangesNothingWhenTruncationMeetsCorruptLine) {
  for (const char* bad : {"garbage", "", "{}", "{\"step\":-1}", "[1]"}) {
    const std::string before = std::string("{\"step\":1}\n") + bad + "\n{\"step\":9}\n";
    write_content(before);
    auto file = open();
    const auto cut = file->truncate_after_step(5);
    EXPECT_EQ(cut.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(cut.status().message().find("offset 11"), std::string::npos)
        << cut.status().message();
    EXPECT_EQ(content(), before);
  }
}

TEST_F(JsonLinesFileTest, ReportsCorruptLineOnRead) {
  write_content("{\"step\":1}\n{\"step\":2}\nxx\n{\"step\":3}\n");
  const auto read = read_records(path_);
  EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
  EXPECT_NE(read.status().message().find("train.jsonl:3:"), std::string::npos);
  EXPECT_EQ(read_records(directory_ / "none").status().code(), StatusCode::kNotFound);
}

TEST_F(JsonLinesFileTest, ReadsEmptyFile) {
  write_content("");
  const auto read = read_records(path_);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->records.empty());
  EXPECT_FALSE(read->has_partial_line);
}

}  // namespace
}  // namespace stoker::metrics
