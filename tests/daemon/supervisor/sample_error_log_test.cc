#include "daemon/supervisor/sample_error_log.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/daemon/supervisor/feed_fixture.h"
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
         ",\"sample\":7,\"message\":\"corrupt\"}\n";
}

metrics::MetricsRecord row_of(uint64_t ticket, const std::string& reason = "corrupt") {
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
  const auto num_records =
      SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 3, .ticket = 3});
  ASSERT_TRUE(num_records.ok()) << num_records.status().to_string();
  EXPECT_EQ(*num_records, 4u);
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
  for (const char* const corruption : {"no JSON\n", "{\"sample\":3}\n", "[1]\n"}) {
    put(line_of(1, 0) + corruption);
    const auto num_records =
        SampleErrorFile::truncate_after(default_file_system(), path(), {.step = 9, .ticket = 9});
    ASSERT_TRUE(num_records.ok()) << corruption;
    EXPECT_EQ(*num_records, 0u);
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
  EXPECT_TRUE(std::filesystem::exists(path() + ".archived-3"));
}

TEST_F(SampleErrorFileTest, TruncatesAtomicallyWhenKilledAtAnyOperation) {
  const std::string complete = line_of(1, 0) + line_of(5, 4) + line_of(2, 1);
  const std::string cut = line_of(1, 0) + line_of(2, 1);
  bool is_done = false;
  for (uint64_t operation = 1; !is_done; ++operation) {
    put(complete);
    FaultyFiles files(directory_.path());
    files.kill_at(operation, test::Fault::Extent::kHalf);
    is_done = SampleErrorFile::truncate_after(files, path(), {.step = 2, .ticket = 2}).ok();
    EXPECT_THAT(text(), AnyOf(Eq(complete), Eq(cut))) << "killed at operation " << operation;
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
  files.simulate_power_loss(files.operations().size(), test::Survival::kNothing, 0, disk / "left");
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

using ::testing::HasSubstr;

class SampleErrorLogTest : public FeedTest {
 protected:
  SampleErrorLog make(double limit = 0.001,
                      config::OnSampleError policy = config::OnSampleError::kSkip,
                      const SampleErrorHistory& before = {}) {
    file_.emplace(default_file_system(), options_.sample_error_path, 0);
    return SampleErrorLog({.on_sample_error = policy, .max_sample_error_rate = limit}, data_.get(),
                          kBatch, before, *file_, clock_);
  }
  static ring::SampleError error(uint64_t ticket, uint64_t sample) {
    return {.ticket = ticket, .sample = sample, .code = StatusCode::kCorrupt, .reason = "corrupt"};
  }
  static std::vector<ring::SampleError> many(uint64_t ticket, uint64_t count) {
    std::vector<ring::SampleError> reports;
    for (uint64_t i = 0; i < count; ++i) reports.push_back(error(ticket, i));
    return reports;
  }
  uint64_t lines() {
    file_->write();
    const std::string text = list_of_sample_errors();
    return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
  }
  ManualClock clock_;
  std::optional<SampleErrorFile> file_;
};

TEST_F(SampleErrorLogTest, RecordsSingleSampleErrorWithoutFailing) {
  auto log = make();
  EXPECT_TRUE(log.add_reports({error(1, 7)}, {.published = 1}).ok());
  EXPECT_EQ(log.count(), 1u);
  EXPECT_EQ(lines(), 1u);
}

TEST_F(SampleErrorLogTest, CountsReportRepeatedAfterCrashOnce) {
  auto log = make();
  EXPECT_TRUE(log.add_reports({error(1, 7), error(1, 8)}, {}).ok());
  EXPECT_TRUE(log.add_reports({error(1, 7), error(2, 7)}, {}).ok());
  EXPECT_EQ(log.count(), 3u);
  EXPECT_EQ(lines(), 3u);
}

TEST_F(SampleErrorLogTest, CountsOnlyTicketsBeforeCheckpoint) {
  auto log = make();
  EXPECT_TRUE(
      log.add_reports({error(3, 1), error(0, 7), error(1, 7), error(1, 8), error(2, 4)}, {}).ok());
  EXPECT_EQ(log.count_before(0), 0u);
  EXPECT_EQ(log.count_before(1), 1u);
  EXPECT_EQ(log.count_before(2), 3u);
  EXPECT_EQ(log.count_before(4), 5u);
  EXPECT_EQ(log.count(), 5u);
}

TEST_F(SampleErrorLogTest, PreservesCountOfConsumedTicketsAfterEviction) {
  auto log = make(1);
  for (uint64_t ticket = 0; ticket < 1000; ++ticket)
    EXPECT_TRUE(
        log.add_reports({error(ticket, 7)}, {.published = ticket, .next_ticket = ticket}).ok());
  EXPECT_EQ(log.count_before(1000), 1000u);
  EXPECT_EQ(log.count_before(999), 999u);
}

TEST_F(SampleErrorLogTest, ExcludesUnfinishedStepOfSeveralTickets) {
  auto log = make(1, config::OnSampleError::kSkip, {.tickets_a_step = 4});
  // The trainer has consumed three of the tickets of the step that starts with ticket 4.
  EXPECT_TRUE(log.add_reports({error(3, 1), error(4, 1), error(6, 1)}, {.next_ticket = 7}).ok());
  EXPECT_EQ(log.count_before(4), 1u);
  EXPECT_EQ(log.count_before(8), 3u);
}

TEST_F(SampleErrorLogTest, ContinuesCountFromCheckpoint) {
  auto log = make(1, config::OnSampleError::kSkip,
                  {.count = 40, .step = 10, .ticket = 20, .tickets_a_step = 2});
  EXPECT_EQ(log.count_before(20), 40u);
  EXPECT_TRUE(
      log.add_reports({error(20, 7), error(21, 7), error(22, 7)}, {.next_ticket = 22}).ok());
  EXPECT_EQ(log.count_before(22), 42u);
  EXPECT_EQ(log.count(), 43u);
  ASSERT_EQ(lines(), 3u);
  EXPECT_THAT(list_of_sample_errors(), HasSubstr(R"({"step":11,"ticket":21,"sample":7,)"));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr(R"({"step":12,"ticket":22,"sample":7,)"));
}

TEST_F(SampleErrorLogTest, ChecksErrorRateAfterEnoughSamples) {
  auto log = make(0.01);
  EXPECT_TRUE(log.add_reports({error(1, 1), error(1, 2), error(1, 3)}, {.published = 2}).ok())
      << "3 of 48: too few to judge";
  EXPECT_TRUE(log.add_reports({}, {.published = 99}).ok()) << "3 of 1600: within the limit";
  const Status verdict = log.add_reports(many(50, 14), {.published = 99});
  EXPECT_EQ(verdict.code(), StatusCode::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("17 of 1600"));
}

// Replacement samples fail too, so that there are more errors than samples of the published batches:
// 257 errors in three batches of 16.
TEST_F(SampleErrorLogTest, ReportsNoMoreErrorsThanSamples) {
  auto log = make(0.01);
  const Status verdict = log.add_reports(many(0, 257), {.published = 2});
  EXPECT_EQ(verdict.code(), StatusCode::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("data.train: 257 of 257 samples cannot be read"));
}

// At night, "17 samples cannot be read" means broken files; a file system that is not mounted is another matter.
TEST_F(SampleErrorLogTest, SaysThatFolderOfDataIsGone) {
  const test::TemporaryDirectory folder;
  const auto describe = [&](const std::string& file) {
    return SampleErrorLog::describe_lost_folder(folder / file);
  };
  std::filesystem::create_directories(folder / "png/cat");
  EXPECT_EQ(describe("png/cat/1.jpg"), (folder / "png/cat") + " is empty; is it mounted?");
  test::write_whole(folder / "png/cat/2.jpg", "");
  EXPECT_EQ(describe("png/cat/1.jpg"), "") << "only the file is missing";
  EXPECT_EQ(describe("png/cat/2.jpg"), "") << "it exists, and is bad";
  EXPECT_EQ(describe("png/dog/1.jpg"),
            (folder / "png/dog") + " does not exist any more; is it mounted?");
  EXPECT_EQ(describe("jpg/new/dog/1.jpg"),
            (folder / "jpg") + " does not exist any more; is it mounted?");
  std::filesystem::remove_all(folder / "png/cat");
  EXPECT_EQ(describe("png/cat/1.jpg"), (folder / "png") + " is empty; is it mounted?");
  EXPECT_EQ(SampleErrorLog::describe_lost_folder(""), "");
}

TEST_F(SampleErrorLogTest, FailsPermanentlyAfterLimitIsExceeded) {
  auto log = make(0.01);
  EXPECT_EQ(log.add_reports(many(0, 10), {}).code(), StatusCode::kCorrupt);
  EXPECT_EQ(log.add_reports({}, {.published = 1'000'000}).code(), StatusCode::kCorrupt);
}

TEST_F(SampleErrorLogTest, FailsImmediatelyOnTenSampleErrors) {
  auto log = make(0.01);
  EXPECT_EQ(log.add_reports(many(0, 10), {.published = 0}).code(), StatusCode::kCorrupt);
}

TEST_F(SampleErrorLogTest, ChecksErrorRateOverAllSamplesAfterResume) {
  // 100 errors in 160,000 samples before. 20 of 1600 exceed the limit of 0.01, 120 of 161,600 do
  // not.
  auto log = make(0.01, config::OnSampleError::kSkip, {.count = 100, .ticket = 10'000});
  EXPECT_TRUE(log.add_reports(many(10'050, 20), {.published = 99}).ok());
  const Status verdict = log.add_reports(many(10'060, 1600), {.published = 99});
  EXPECT_EQ(verdict.code(), StatusCode::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("1720 of 161600"));
}

TEST_F(SampleErrorLogTest, ToleratesPreviousErrorsAfterRepair) {
  auto log = make(0.01, config::OnSampleError::kSkip, {.count = 5000, .ticket = 10'000});
  EXPECT_TRUE(log.add_reports({}, {.published = 100}).ok());
  EXPECT_TRUE(log.add_reports({error(10'100, 3)}, {.published = 110}).ok())
      << "1 of 1776 since then";
  EXPECT_EQ(log.add_reports(many(10'111, 20), {.published = 111}).code(), StatusCode::kCorrupt)
      << "21 of 1792, and far more before";
}

TEST_F(SampleErrorLogTest, CountsLostReports) {
  auto log = make(0.01);
  EXPECT_EQ(log.add_reports({error(0, 1)}, {.published = 0, .lost_reports = 9}).code(),
            StatusCode::kCorrupt);
  EXPECT_EQ(log.count(), 10u);
}

TEST_F(SampleErrorLogTest, NeverFailsWithLimitOfOne) {
  auto log = make(1.0);
  EXPECT_TRUE(log.add_reports(many(0, 400), {.published = 0}).ok());
  EXPECT_EQ(lines(), 400u);
}

TEST_F(SampleErrorLogTest, FailsOnFirstSampleErrorWhenConfigured) {
  auto log = make(1.0, config::OnSampleError::kFail);
  EXPECT_TRUE(log.add_reports({}, {.published = 10}).ok());
  EXPECT_EQ(log.add_reports({error(0, 3)}, {.published = 10}).code(), StatusCode::kCorrupt);
}

// A later start can succeed, unlike with corrupt data.
TEST_F(SampleErrorLogTest, FailsWithErrorOfSystemIfFilesAreLost) {
  for (const StatusCode code : {StatusCode::kNotFound, StatusCode::kPermission,
                                StatusCode::kIoError, StatusCode::kTimedOut}) {
    auto log = make(0.01);
    std::vector<ring::SampleError> reports = many(0, 10);
    reports.back().code = code;
    EXPECT_EQ(log.add_reports(reports, {}).code(), StatusCode::kIoError);
  }
}

TEST_F(SampleErrorLogTest, FailsOnFirstNewSampleErrorAfterResume) {
  auto log = make(1.0, config::OnSampleError::kFail, {.count = 5, .step = 10, .ticket = 10});
  EXPECT_TRUE(log.add_reports({}, {.published = 10}).ok());
  EXPECT_EQ(log.add_reports({error(12, 3)}, {.published = 10}).code(), StatusCode::kCorrupt);
}

TEST_F(SampleErrorLogTest, RecordsInvalidReportWithoutSource) {
  auto log = make();
  EXPECT_TRUE(log.add_reports({error(~0ull, ~0ull)}, {}).ok());
  EXPECT_EQ(lines(), 1u);
  EXPECT_EQ(log.count_before(5), 0u);
}

TEST_F(SampleErrorLogTest, ContinuesWhenFileCannotBeWritten) {
  options_.sample_error_path = path("no/such/folder/list.jsonl");
  auto log = make();
  EXPECT_TRUE(log.add_reports({error(1, 7), error(1, 8)}, {}).ok());
  EXPECT_EQ(lines(), 0u);
  EXPECT_EQ(log.count(), 2u);
}

}  // namespace
}  // namespace stoker::supervisor
