#include "daemon/supervisor/sample_error_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

using ::testing::HasSubstr;

class SampleErrorLogTest : public FeedTest {
 protected:
  SampleErrorLog make(double limit = 0.001,
                      config::OnSampleError policy = config::OnSampleError::kSkip,
                      const SampleErrorHistory& before = {}) {
    file_.emplace(default_file_system(), options_.sample_error_path, 0);
    return SampleErrorLog({.on_sample_error = policy, .max_sample_error_rate = limit}, *data_,
                          kBatch, before, *file_, clock_);
  }
  static ring::SampleError error(uint64_t ticket, uint64_t sample) {
    return {.ticket = ticket, .sample = sample, .code = StatusCode::kCorrupt, .reason = "torn"};
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
        log.add_reports({error(ticket, 7)}, {.published = ticket, .consumed = ticket}).ok());
  EXPECT_EQ(log.count_before(1000), 1000u);
  EXPECT_EQ(log.count_before(999), 999u);
}

TEST_F(SampleErrorLogTest, ExcludesUnfinishedStepOfSeveralTickets) {
  auto log = make(1, config::OnSampleError::kSkip, {.tickets_a_step = 4});
  // The trainer has taken three of the tickets of the step that begins with ticket 4.
  EXPECT_TRUE(log.add_reports({error(3, 1), error(4, 1), error(6, 1)}, {.consumed = 7}).ok());
  EXPECT_EQ(log.count_before(4), 1u);
  EXPECT_EQ(log.count_before(8), 3u);
}

TEST_F(SampleErrorLogTest, ContinuesCountFromCheckpoint) {
  auto log = make(1, config::OnSampleError::kSkip,
                  {.count = 40, .step = 10, .ticket = 20, .tickets_a_step = 2});
  EXPECT_EQ(log.count_before(20), 40u);
  EXPECT_TRUE(log.add_reports({error(20, 7), error(21, 7), error(22, 7)}, {.consumed = 2}).ok());
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
  // 100 of 160,000 before: 20 of 1600 are more than the limit of 0.01, 120 of 161,600 are not.
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
