#include "daemon/parameter_server/update_log.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_files.h"
#include "tests/support/logged_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::parameter_server {
namespace {

using test::log_of;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
namespace fs = std::filesystem;

class UpdateLogTest : public ::testing::Test {
 protected:
  static UpdateLogIdentity identity_of(uint32_t server, uint32_t num_servers = 2) {
    return {.server = server,
            .num_servers = num_servers,
            .placement = config::VariablePlacement::kBytes,
            .config_digest = std::string(64, 'c'),
            .data_fingerprint = "data",
            .model_digest = "model"};
  }
  static LoggedUpdate update_to(uint64_t step) {
    return {.ticket = step * 3, .worker = 7, .read_steps = {step - 1, step}};
  }
  std::string directory() const { return folder_.path() + "/updates"; }
  std::string path(uint32_t server = 0) const { return update_log_path(directory(), server); }
  // Continues the log after `step`, up to `end`.
  void write(uint64_t step, uint64_t end, uint32_t server = 0, uint32_t num_servers = 2) const {
    auto log = UpdateLog::open(default_file_system(), path(server),
                               identity_of(server, num_servers), step);
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    for (uint64_t i = step + 1; i <= end; ++i) ASSERT_TRUE(log->append(update_to(i)).ok());
    ASSERT_TRUE(log->sync().ok());
  }
  void expect_log(uint64_t first_step, uint64_t end) const {
    const auto log = read_update_log(path());
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    EXPECT_EQ(log->first_step, first_step);
    ASSERT_EQ(log->first_step + log->updates.size(), end);
    for (uint64_t step = first_step + 1; step <= end; ++step) {
      const size_t i = step - first_step - 1;
      const LoggedUpdate expected = update_to(step);
      EXPECT_EQ(log->updates.ticket(i), expected.ticket);
      EXPECT_EQ(log->updates.worker(i), expected.worker);
      EXPECT_THAT(log->updates.read_steps(i), ElementsAreArray(expected.read_steps));
    }
  }
  void change_byte(uint64_t offset) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
  }

  const test::TemporaryDirectory folder_;
};

constexpr uint64_t kHeaderBytes = 240, kRecordBytes = 32;

TEST_F(UpdateLogTest, ReadsWhatWasWritten) {
  write(5, 9);
  expect_log(5, 9);
  const auto log = read_update_log(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->identity, identity_of(0));
  EXPECT_EQ(fs::file_size(path()), kHeaderBytes + 4 * kRecordBytes);
}

TEST_F(UpdateLogTest, CutsAndContinuesAtResumedStep) {
  write(0, 9);
  write(4, 6);
  expect_log(0, 6);
  write(6, 6);
  expect_log(0, 6);
  write(0, 2);
  expect_log(0, 2);
}

TEST_F(UpdateLogTest, ReportsLogsThatAreReplaced) {
  const auto open = [this](const UpdateLogIdentity& identity, uint64_t step) {
    return log_of(
        [&] { EXPECT_TRUE(UpdateLog::open(default_file_system(), path(), identity, step).ok()); });
  };
  auto other = identity_of(0);
  other.placement = config::VariablePlacement::kRoundRobin;
  EXPECT_EQ(open(other, 4), "");
  EXPECT_EQ(open(identity_of(0), 4), "") << "it has no updates";
  write(4, 9);
  EXPECT_EQ(open(identity_of(0), 8), "") << "it continues";
  EXPECT_THAT(open(other, 8), AllOf(HasSubstr("update log removed"), HasSubstr(path()),
                                    HasSubstr("another placement")));
  other.num_servers = 1;
  write(0, 9);
  EXPECT_EQ(open(other, 0), "") << "the run begins again";
  write(0, 9);
  EXPECT_THAT(open(other, 8), HasSubstr("another number of parameter servers"));
  write(0, 9);
  EXPECT_THAT(open(identity_of(0), 10), HasSubstr("does not have the updates up to this step"));
}

TEST_F(UpdateLogTest, ReportsLogWhoseHeaderCannotBeRead) {
  const auto open = [this](uint64_t step) {
    return log_of([&] {
      EXPECT_TRUE(UpdateLog::open(default_file_system(), path(), identity_of(0), step).ok());
    });
  };
  write(0, 9);
  change_byte(20);
  EXPECT_THAT(open(6), AllOf(HasSubstr("update log removed"), HasSubstr("the header is corrupt")));
  expect_log(6, 6);
  change_byte(20);
  EXPECT_EQ(open(6), "") << "it has no updates";
  write(0, 9);
  change_byte(8);
  EXPECT_THAT(open(6), HasSubstr("this version reads format 1"));
  write(0, 9);
  change_byte(8);
  EXPECT_EQ(open(0), "") << "the run begins again";
}

// Whichever operation fails, as with a log that another user has written.
TEST_F(UpdateLogTest, ReportsEachLogThatIsLostByAnError) {
  const auto is_kept = [this] {
    const auto log = read_update_log(path());
    return log.ok() && log->first_step == 0;
  };
  for (const bool is_cut : {false, true}) {
    int num_lost = 0;
    for (uint64_t operation = 1; operation <= 12; ++operation) {
      fs::remove(path());
      write(0, 9);
      test::FaultyFiles files(folder_.path());
      files.fail_at(operation, {.error = EACCES});
      const std::string log = log_of([&] {
        if (is_cut)
          (void)cut_update_logs(files, directory(), 6);
        else
          (void)UpdateLog::open(files, path(), identity_of(0), 6);
      });
      if (is_kept()) continue;
      ++num_lost;
      EXPECT_THAT(log, AllOf(HasSubstr("update log removed"), HasSubstr(path()))) << operation;
    }
    EXPECT_GT(num_lost, 0);
  }
}

TEST_F(UpdateLogTest, ReportsLogsOfOtherState) {
  const auto remove = [this](uint64_t step) {
    return log_of([&] {
      EXPECT_TRUE(
          cut_update_logs(default_file_system(), directory(), step, /*leads_here=*/false).ok());
    });
  };
  write(0, 9);
  write(0, 9, 1);
  std::ofstream(directory() + "/ps-2.log") << "text";
  const std::string log = remove(4);
  for (const uint32_t server : {0, 1}) {
    EXPECT_THAT(log, AllOf(HasSubstr(path(server)), HasSubstr("do not lead to the checkpoint")));
    EXPECT_FALSE(fs::exists(path(server)));
  }
  EXPECT_TRUE(fs::exists(path(2)));
  EXPECT_EQ(remove(4), "");
}

// The steps between were trained without the servers, or are lost.
TEST_F(UpdateLogTest, BeginsAgainIfUpdatesBeforeAreMissing) {
  write(4, 6);
  write(8, 9);
  expect_log(8, 9);
  write(3, 5);
  expect_log(3, 5);
}

TEST_F(UpdateLogTest, BeginsAgainForOtherRun) {
  write(0, 9);
  auto other = identity_of(0);
  other.model_digest = "other";
  ASSERT_TRUE(UpdateLog::open(default_file_system(), path(), other, 6).ok());
  const auto log = read_update_log(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->first_step, 6u);
  EXPECT_EQ(log->identity, other);
}

TEST_F(UpdateLogTest, BeginsAgainIfRecordBeforeIsCorrupt) {
  write(0, 9);
  change_byte(kHeaderBytes + 5 * kRecordBytes);
  write(6, 7);
  expect_log(6, 7);
}

TEST_F(UpdateLogTest, HasIdOfLastStart) {
  write(0, 9);
  auto next = identity_of(0);
  next.start_id = 5;
  ASSERT_TRUE(UpdateLog::open(default_file_system(), path(), next, 6).ok());
  expect_log(0, 6);
  EXPECT_EQ(read_update_log(path())->identity, next);
}

// Its records after the step are not those that follow.
TEST_F(UpdateLogTest, IsRemovedIfItCannotBeOpened) {
  write(0, 9);
  fs::rename(path(), folder_.path() + "/elsewhere");
  fs::create_symlink(folder_.path() + "/elsewhere", path());
  EXPECT_FALSE(UpdateLog::open(default_file_system(), path(), identity_of(0), 6).ok());
  EXPECT_FALSE(fs::exists(fs::symlink_status(path())));
  EXPECT_TRUE(fs::exists(folder_.path() + "/elsewhere"));
}

TEST_F(UpdateLogTest, RemovesLogsOfFormerServers) {
  for (const uint32_t server : {0, 1, 2}) write(0, 2, server, 3);
  write(2, 2, 0, 2);
  EXPECT_TRUE(fs::exists(path(1)));
  EXPECT_FALSE(fs::exists(path(2)));
}

TEST_F(UpdateLogTest, IgnoresIncompleteLastRecord) {
  write(0, 9);
  fs::resize_file(path(), kHeaderBytes + 9 * kRecordBytes - 1);
  expect_log(0, 8);
  write(8, 9);
  expect_log(0, 9);
}

TEST_F(UpdateLogTest, ReportsCorruptRecordWithStepAndOffset) {
  for (uint64_t byte = 0; byte < kRecordBytes; ++byte) {
    write(0, 9);
    change_byte(kHeaderBytes + 3 * kRecordBytes + byte);
    const auto log = read_update_log(path());
    EXPECT_EQ(log.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(log.status().message(), HasSubstr("step 4, at offset 336"));
    fs::remove(path());
  }
}

// The checksum contains the step.
TEST_F(UpdateLogTest, ReportsRecordAtPlaceOfAnother) {
  write(0, 9);
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  std::string record(kRecordBytes, '\0');
  file.seekg(kHeaderBytes + 4 * kRecordBytes);
  file.read(record.data(), kRecordBytes);
  file.seekp(kHeaderBytes + 2 * kRecordBytes);
  file.write(record.data(), kRecordBytes);
  file.close();
  EXPECT_THAT(read_update_log(path()).status().message(), HasSubstr("the record of step 3"));
}

TEST_F(UpdateLogTest, ReportsWhatIsNoLog) {
  EXPECT_EQ(read_update_log(path()).status().code(), StatusCode::kNotFound);
  write(0, 1);
  for (uint64_t byte = 0; byte < kHeaderBytes; ++byte) {
    change_byte(byte);
    EXPECT_EQ(read_update_log(path()).status().code(), StatusCode::kCorrupt) << byte;
    change_byte(byte);
  }
  std::ofstream(path()) << "text";
  EXPECT_THAT(read_update_log(path()).status().message(), HasSubstr("is not an update log"));
}

TEST_F(UpdateLogTest, IsCutWhereRunContinuesWithoutServers) {
  EXPECT_TRUE(cut_update_logs(default_file_system(), directory(), 3).ok());
  write(2, 9);
  write(4, 9, 1);
  std::ofstream(directory() + "/ps-2.log") << "text";
  fs::create_directory(path(3));
  fs::create_symlink(path(2), path(4));
  ASSERT_TRUE(cut_update_logs(default_file_system(), directory(), 20).ok());
  expect_log(2, 9);
  ASSERT_TRUE(cut_update_logs(default_file_system(), directory(), 4).ok());
  expect_log(2, 4);
  EXPECT_FALSE(fs::exists(path(1)));
  EXPECT_TRUE(fs::exists(path(2)));
  EXPECT_TRUE(fs::exists(path(3)));
  ASSERT_TRUE(cut_update_logs(default_file_system(), directory(), 0).ok());
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(UpdateLogTest, ComparesUpdatesOfReplayUpToItsCheckpoint) {
  const std::string replay = folder_.path() + "/replay";
  const auto compare = [&](uint64_t step) {
    return compare_replayed_logs(directory(), replay, 2, step);
  };
  write(2, 6);
  write(2, 6, 1);
  EXPECT_EQ(compare(4).code(), StatusCode::kMismatch);  // no replay
  ASSERT_TRUE(copy_replayed_logs(default_file_system(), directory(), replay, 2).ok());
  write(6, 9);  // the run continues
  write(6, 9, 1);
  for (uint64_t step = 2; step <= 6; ++step) EXPECT_TRUE(compare(step).ok()) << step;
  EXPECT_EQ(compare(7).code(), StatusCode::kMismatch);
  auto log = UpdateLog::open(default_file_system(), path(1), identity_of(1), 4);
  ASSERT_TRUE(log.ok());  // it has resumed from an earlier checkpoint
  for (uint64_t step = 5; step <= 9; ++step) ASSERT_TRUE(log->append(update_to(step + 1)).ok());
  EXPECT_TRUE(compare(4).ok());
  EXPECT_EQ(compare(5).code(), StatusCode::kMismatch);
  EXPECT_EQ(compare(6).code(), StatusCode::kMismatch);
  // One process continues the run in the directory of the replay.
  ASSERT_TRUE(cut_update_logs(default_file_system(), replay, 4).ok());
  EXPECT_EQ(compare(4).code(), StatusCode::kMismatch);
}

}  // namespace
}  // namespace stoker::parameter_server
