#include "daemon/supervisor/sample_error_file.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::supervisor {
namespace {

using test::FaultyFiles;
using test::TemporaryDirectory;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Eq;

std::string line_of(uint64_t step, uint64_t ticket) {
  return "{\"step\":" + std::to_string(step) + ",\"ticket\":" + std::to_string(ticket) +
         ",\"sample\":7,\"message\":\"torn\"}\n";
}

metrics::MetricsRecord row_of(uint64_t ticket, const std::string& reason = "torn") {
  return metrics::MetricsRecord()
      .add("ticket", ticket)
      .add("sample", uint64_t{7})
      .add("message", reason);
}

class SampleErrorFileTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_ / "sample_errors.jsonl"; }
  void put(const std::string& text) const { test::write_whole(path(), text); }
  std::string text() const {
    const auto read = read_file(path(), 1 << 20);
    return read.ok() ? *read : "";
  }
  std::vector<uint64_t> tickets() const { return tickets_in(path()); }
  static std::vector<uint64_t> tickets_in(const std::string& path) {
    std::vector<uint64_t> tickets;
    const auto read = metrics::read_records(path);
    if (!read.ok()) return tickets;
    for (const auto& row : read->records) tickets.push_back(*row.find_count("ticket"));
    return tickets;
  }

  TemporaryDirectory directory_;
};

TEST_F(SampleErrorFileTest, TruncatesToRecordsOfCheckpointInAnyOrder) {
  put(line_of(3, 2) + line_of(1, 0) + line_of(4, 3) + line_of(2, 1) + line_of(3, 2));
  const auto kept =
      SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 3, .ticket = 3});
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  EXPECT_EQ(*kept, 4u);
  EXPECT_EQ(text(), line_of(3, 2) + line_of(1, 0) + line_of(2, 1) + line_of(3, 2));
}

TEST_F(SampleErrorFileTest, TruncatesByStepWhenBatchSizeChanges) {
  put(line_of(80, 79) + line_of(81, 40) + line_of(90, 49));
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 81, .ticket = 41}),
      2u);
  EXPECT_THAT(tickets(), ElementsAre(79, 40));
}

TEST_F(SampleErrorFileTest, TruncatesByTicketWhenRecordsHaveNoStep) {
  put("{\"ticket\":8,\"sample\":1}\n{\"ticket\":9,\"sample\":1}\n");
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 3, .ticket = 9}),
      1u);
  EXPECT_THAT(tickets(), ElementsAre(8));
}

TEST_F(SampleErrorFileTest, RemovesPartialLastLine) {
  put(line_of(1, 0) + "{\"step\":2,\"tick");
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9}),
      1u);
  EXPECT_EQ(text(), line_of(1, 0));
}

TEST_F(SampleErrorFileTest, DoesNotTouchFileWithoutRecordsToRemove) {
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9}),
      0u);
  EXPECT_FALSE(std::filesystem::exists(path()));
  put(line_of(1, 0));
  const auto before = std::filesystem::last_write_time(path());
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9}),
      1u);
  EXPECT_EQ(std::filesystem::last_write_time(path()), before);
}

TEST_F(SampleErrorFileTest, ArchivesCorruptFileAndContinues) {
  for (const char* const damage : {"no JSON\n", "{\"sample\":3}\n", "[1]\n"}) {
    put(line_of(1, 0) + damage);
    const auto kept =
        SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9});
    ASSERT_TRUE(kept.ok()) << damage;
    EXPECT_EQ(*kept, 0u);
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(std::filesystem::exists(path() + ".archived-3"));
}

TEST_F(SampleErrorFileTest, TruncatesAtomicallyWhenKilledAtAnyOperation) {
  const std::string whole = line_of(1, 0) + line_of(5, 4) + line_of(2, 1);
  const std::string cut = line_of(1, 0) + line_of(2, 1);
  bool is_done = false;
  for (uint64_t operation = 1; !is_done; ++operation) {
    put(whole);
    FaultyFiles files(directory_.path());
    files.kill_at(operation, test::Fault::Extent::kHalf);
    is_done = SampleErrorFile::truncate_after(files, path(), {.step = 2, .ticket = 2}).ok();
    EXPECT_THAT(text(), AnyOf(Eq(whole), Eq(cut))) << "killed at operation " << operation;
    ASSERT_TRUE(
        SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 2, .ticket = 2})
            .ok());
    EXPECT_EQ(text(), cut);
    ASSERT_LT(operation, 100u);
  }
}

TEST_F(SampleErrorFileTest, PreservesFlushedRecordsAfterPowerCut) {
  FaultyFiles files(directory_.path());
  SampleErrorFile file(files, path(), 0);
  file.add(row_of(1));
  file.add(row_of(2));
  file.flush();
  const TemporaryDirectory disk;
  files.cut_power(files.operations().size(), test::Survival::kNothing, 0, disk / "left");
  EXPECT_THAT(tickets_in(disk / "left/sample_errors.jsonl"), ElementsAre(1, 2));
}

TEST_F(SampleErrorFileTest, WritesEachRecordOnceAfterFullDisk) {
  FaultyFiles files(directory_.path());
  SampleErrorFile file(files, path(), 0);
  file.add(row_of(1));
  file.write();
  files.fail_at(files.operations().size() + 2, {ENOSPC, test::Fault::Extent::kHalf});
  for (uint64_t ticket = 2; ticket < 5; ++ticket) file.add(row_of(ticket));
  file.write();
  EXPECT_THAT(tickets(), ElementsAre(1, 2));
  file.add(row_of(5));
  file.write();
  EXPECT_THAT(tickets(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(SampleErrorFileTest, AppendsToExistingRecords) {
  put(line_of(1, 0));
  SampleErrorFile file(default_file_system(), path(), 1);
  file.add(row_of(1));
  EXPECT_THAT(tickets(), ElementsAre(0)) << "nothing waits for the disk before write()";
  file.write();
  file.add(row_of(2));
  file.flush();
  EXPECT_THAT(tickets(), ElementsAre(0, 1, 2));
}

TEST_F(SampleErrorFileTest, WritesInvalidUtf8AsReadableText) {
  SampleErrorFile file(default_file_system(), path(), 0);
  file.add(row_of(1, "in a file called \xff\xfe"));
  file.write();
  EXPECT_THAT(tickets(), ElementsAre(1));
  EXPECT_EQ(
      *SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9}),
      1u);
}

TEST_F(SampleErrorFileTest, LimitsNumberOfRecords) {
  SampleErrorFile file(default_file_system(), path(), SampleErrorFile::kMaxLines - 2);
  for (uint64_t ticket = 0; ticket < 5; ++ticket) file.add(row_of(ticket));
  file.write();
  EXPECT_THAT(tickets(), ElementsAre(0, 1));
}

TEST_F(SampleErrorFileTest, WritesNothingWithoutPath) {
  SampleErrorFile file(default_file_system(), "", 0);
  file.add(row_of(1));
  file.flush();
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace stoker::supervisor
