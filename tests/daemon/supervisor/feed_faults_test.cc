// Faults of data and descriptors while workers read; docs/fault-tolerance.md has the complete
// table. tests/daemon/supervisor/failing_reads.cc, preloaded into stoker-feed, injects failing
// reads and opens.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

using ::testing::HasSubstr;

class FeedFaultTest : public FeedTest {
 protected:
  static constexpr size_t kRecord = 3073;
  static constexpr size_t kRecords = 50;  // in each of four files

  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = FEED_PROGRAM;
    options_.feed.max_sample_error_rate = 1.0;
    std::string bytes(kRecords * kRecord, '\1');
    for (size_t record = 0; record < kRecords; ++record)
      bytes[record * kRecord] = static_cast<char>(record % 10);
    std::filesystem::create_directory(path("data"));
    for (const char* number : {"1", "2", "3", "4"})
      std::ofstream(file(number), std::ios::binary) << bytes;
    open_data({.source = config::CifarDataset{.path = path("data")}});
    write_config("{format: cifar10, path: " + path("data") + "}");
  }
  void TearDown() override {
    for (const char* name : {"LD_PRELOAD", "FAIL_READS"}) ::unsetenv(name);
    FeedTest::TearDown();
  }
  std::string file(const std::string& number) const {
    return path("data/data_batch_" + number + ".bin");
  }
  // "FILE OFFSET ERROR TIMES": reads of the file at this offset fail this many times in each
  // process.
  void fail_reads(size_t record, int error, int times) {
    ::setenv("FAIL_READS",
             (file("1") + " " + std::to_string(record * kRecord) + " " + std::to_string(error) +
              " " + std::to_string(times))
                 .c_str(),
             1);
    ::setenv("LD_PRELOAD", FAILING_READS, 1);
  }
};

TEST_F(FeedFaultTest, ReportsSampleErrorsWithoutCrashWhenFileIsTruncated) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 13; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  std::filesystem::resize_file(file("2"), kRecord * kRecords / 2 + 100);
  // The data can be cached in memory: the truncation is detected within a tenth of a second.
  EXPECT_TRUE(eventually([&] {
    const auto batch = ring_->pop(kTestTimeout);
    if (batch.ok()) ring_->release(batch->ticket);
    return !batch.ok() || supervisor_->sample_errors() > 0;
  }));
  supervisor_->stop();
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("data_batch_2.bin"));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("since it was indexed"));
  EXPECT_EQ(supervisor_->crashes(), 0u);
}

TEST_F(FeedFaultTest, ServesSmallDatasetFromMemoryAfterFirstEpoch) {
  constexpr uint64_t kEpoch = 4 * kRecords / kBatch + 1;
  open_ring({.slots = 4});
  std::vector<std::vector<std::byte>> expected;
  for (uint64_t ticket = 0; ticket < 3 * kEpoch; ++ticket)
    expected.push_back(expected_batch(ticket));
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 3 * kEpoch; ++ticket) {
    if (ticket == kEpoch + 4) {  // plus the ring's slots: samples are now read for the second time
      // The workers wait for a free slot, so that none sees the files before their times are reset.
      ASSERT_TRUE(eventually([&] { return ring_->counters().ready == ring_->slots(); }));
      for (const char* number : {"1", "2", "3", "4"}) {
        const auto time = std::filesystem::last_write_time(file(number));
        std::fstream(file(number), std::ios::in | std::ios::out | std::ios::binary)
            << std::string(kRecords * kRecord, '\2');
        std::filesystem::last_write_time(file(number), time);
      }
    }
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    for (size_t tensor : {0, 1}) {
      const auto got = ring_->layout().tensor_bytes(batch->slot, tensor);
      const auto expected_bytes = ring_->layout().tensor_bytes(expected[ticket], tensor);
      ASSERT_TRUE(std::ranges::equal(got, expected_bytes)) << "ticket " << ticket;
    }
    ring_->release(ticket);
  }
  supervisor_->stop();
  EXPECT_EQ(supervisor_->sample_errors(), 0u);
}

TEST_F(FeedFaultTest, DetectsFileReplacedAfterIndexing) {
  std::filesystem::rename(file("3"), path("old"));
  std::ofstream(file("3"), std::ios::binary) << std::string(kRecords * kRecord, '\2');
  options_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 16});  // more than an epoch
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr("data_batch_3.bin at offset"), HasSubstr(": modified")));
}

TEST_F(FeedFaultTest, ReadsSampleAfterTransientReadError) {
  if (feeder::kSanitized) GTEST_SKIP() << "the sanitizer runtime must be loaded first";
  fail_reads(17, EIO, 2);
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 30; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->sample_errors(), 0u);
}

TEST_F(FeedFaultTest, ReportsPersistentReadErrorWithFileAndOffset) {
  if (feeder::kSanitized) GTEST_SKIP() << "the sanitizer runtime must be loaded first";
  fail_reads(17, EIO, 1'000'000);
  unreadable_ = {17};
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 30; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("\"sample\":17,"));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("I/O error"));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("offset " + std::to_string(17 * kRecord)));
}

TEST_F(FeedFaultTest, RetriesFailedReadEquallyOftenWithReadAhead) {
  if (feeder::kSanitized) GTEST_SKIP() << "the sanitizer runtime must be loaded first";
  write_config("{format: cifar10, path: " + path("data") + "}", "{read_ahead: 4}");
  fail_reads(17, EIO, 3);  // a fourth attempt would succeed
  unreadable_ = {17};
  constexpr uint64_t kTickets = 200 / kBatch;  // one epoch, in which the sample occurs once
  open_ring({.slots = 4, .end_ticket = kTickets});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < kTickets; ++ticket)
    ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_EQ(supervisor_->sample_errors(), 1u);
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("offset " + std::to_string(17 * kRecord)));
}

TEST_F(FeedFaultTest, QuarantinesSampleThatCrashesDecoder) {
  options_.feed_program = WORKER_TEST_PROGRAM;
  options_.config_path = path("crashes");
  open_data(synthetic_config());
  unreadable_ = {plan_->at(3, 5).sample};
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 70; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto found = supervisor_->quarantined();
  EXPECT_EQ(std::set<uint64_t>(found.begin(), found.end()), unreadable_);
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

}  // namespace
}  // namespace stoker::supervisor
