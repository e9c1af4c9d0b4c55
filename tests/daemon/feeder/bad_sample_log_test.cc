#include "daemon/feeder/bad_sample_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/daemon/feeder/feeder_fixture.h"

namespace stoker::feeder {
namespace {

using ::testing::HasSubstr;

class BadSampleLogTest : public FeederTest {
 protected:
  BadSampleLog make(double limit = 0.001,
                    config::OnSampleError policy = config::OnSampleError::kSkip,
                    const BadSamplesBefore& before = {}) {
    file_.emplace(real_files(), settings_.bad_sample_path, 0);
    return BadSampleLog({.on_sample_error = policy, .max_sample_error_rate = limit}, *data_, kBatch,
                        before, *file_, clock_);
  }
  static ring::BadSample bad(uint64_t ticket, uint64_t sample) {
    return {.ticket = ticket, .sample = sample, .code = Code::kCorrupt, .reason = "torn"};
  }
  static std::vector<ring::BadSample> many(uint64_t ticket, uint64_t count) {
    std::vector<ring::BadSample> reports;
    for (uint64_t i = 0; i < count; ++i) reports.push_back(bad(ticket, i));
    return reports;
  }
  uint64_t lines() {
    file_->write();
    const std::string text = list_of_bad_samples();
    return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
  }
  ManualClock clock_;
  std::optional<BadSampleFile> file_;
};

TEST_F(BadSampleLogTest, ASingleBadSampleIsNotedAndNotFatal) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7)}, {.published = 1}).ok());
  EXPECT_EQ(log.count(), 1u);
  EXPECT_EQ(lines(), 1u);
}

TEST_F(BadSampleLogTest, AReportThatIsMadeAgainAfterADeathCountsOnce) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7), bad(1, 8)}, {}).ok());
  EXPECT_TRUE(log.take({bad(1, 7), bad(2, 7)}, {}).ok());
  EXPECT_EQ(log.count(), 3u);
  EXPECT_EQ(lines(), 3u);
}

TEST_F(BadSampleLogTest, ACheckpointCountsNoTicketThatItsStepsWereNotTrainedOn) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(3, 1), bad(0, 7), bad(1, 7), bad(1, 8), bad(2, 4)}, {}).ok());
  EXPECT_EQ(log.count_before(0), 0u);
  EXPECT_EQ(log.count_before(1), 1u);
  EXPECT_EQ(log.count_before(2), 3u);
  EXPECT_EQ(log.count_before(4), 5u);
  EXPECT_EQ(log.count(), 5u);
}

TEST_F(BadSampleLogTest, WhatWasTrainedOnStaysCountedWhenItIsForgotten) {
  auto log = make(1);
  for (uint64_t ticket = 0; ticket < 1000; ++ticket)
    EXPECT_TRUE(log.take({bad(ticket, 7)}, {.published = ticket, .consumed = ticket}).ok());
  EXPECT_EQ(log.count_before(1000), 1000u);
  EXPECT_EQ(log.count_before(999), 999u);
}

TEST_F(BadSampleLogTest, AStepOfSeveralTicketsThatIsTakenBackIsNotCounted) {
  auto log = make(1, config::OnSampleError::kSkip, {.tickets_a_step = 4});
  // The trainer has taken three of the tickets of the step that begins with ticket 4.
  EXPECT_TRUE(log.take({bad(3, 1), bad(4, 1), bad(6, 1)}, {.consumed = 7}).ok());
  EXPECT_EQ(log.count_before(4), 1u);
  EXPECT_EQ(log.count_before(8), 3u);
}

TEST_F(BadSampleLogTest, GoesOnCountingWhereTheCheckpointStood) {
  auto log = make(1, config::OnSampleError::kSkip,
                  {.count = 40, .step = 10, .ticket = 20, .tickets_a_step = 2});
  EXPECT_EQ(log.count_before(20), 40u);
  EXPECT_TRUE(log.take({bad(20, 7), bad(21, 7), bad(22, 7)}, {.consumed = 2}).ok());
  EXPECT_EQ(log.count_before(22), 42u);
  EXPECT_EQ(log.count(), 43u);
  ASSERT_EQ(lines(), 3u);
  EXPECT_THAT(list_of_bad_samples(), HasSubstr(R"({"step":11,"ticket":21,"sample":7,)"));
  EXPECT_THAT(list_of_bad_samples(), HasSubstr(R"({"step":12,"ticket":22,"sample":7,)"));
}

TEST_F(BadSampleLogTest, ThePartIsJudgedOnceThereAreEnoughSamples) {
  auto log = make(0.01);
  EXPECT_TRUE(log.take({bad(1, 1), bad(1, 2), bad(1, 3)}, {.published = 2}).ok())
      << "3 of 48: too few to judge";
  EXPECT_TRUE(log.take({}, {.published = 99}).ok()) << "3 of 1600: within the limit";
  const Status verdict = log.take(many(50, 14), {.published = 99});
  EXPECT_EQ(verdict.code(), Code::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("17 of 1600"));
}

TEST_F(BadSampleLogTest, AVerdictStaysHoweverManyGoodSamplesFollow) {
  auto log = make(0.01);
  EXPECT_EQ(log.take(many(0, 10), {}).code(), Code::kCorrupt);
  EXPECT_EQ(log.take({}, {.published = 1'000'000}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, TenBadOnesAreJudgedAtOnce) {
  auto log = make(0.01);
  EXPECT_EQ(log.take(many(0, 10), {.published = 0}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, ARunThatGoesOnIsJudgedByAllItsSamples) {
  // 100 of 160,000 before: 20 of 1600 are more than the limit of 0.01, 120 of 161,600 are not.
  auto log = make(0.01, config::OnSampleError::kSkip, {.count = 100, .ticket = 10'000});
  EXPECT_TRUE(log.take(many(10'050, 20), {.published = 99}).ok());
  const Status verdict = log.take(many(10'060, 1600), {.published = 99});
  EXPECT_EQ(verdict.code(), Code::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("1720 of 161600"));
}

TEST_F(BadSampleLogTest, WhatWasBeyondTheLimitAndIsRepairedDoesNotEndTheRunAgain) {
  auto log = make(0.01, config::OnSampleError::kSkip, {.count = 5000, .ticket = 10'000});
  EXPECT_TRUE(log.take({}, {.published = 100}).ok());
  EXPECT_TRUE(log.take({bad(10'100, 3)}, {.published = 110}).ok()) << "1 of 1776 since then";
  EXPECT_EQ(log.take(many(10'111, 20), {.published = 111}).code(), Code::kCorrupt)
      << "21 of 1792, and far more before";
}

TEST_F(BadSampleLogTest, ReportsThatWereLostCountToo) {
  auto log = make(0.01);
  EXPECT_EQ(log.take({bad(0, 1)}, {.published = 0, .lost_reports = 9}).code(), Code::kCorrupt);
  EXPECT_EQ(log.count(), 10u);
}

TEST_F(BadSampleLogTest, ALimitOfOneNeverEndsTheRun) {
  auto log = make(1.0);
  EXPECT_TRUE(log.take(many(0, 400), {.published = 0}).ok());
  EXPECT_EQ(lines(), 400u);
}

TEST_F(BadSampleLogTest, StopEndsTheRunAtTheFirst) {
  auto log = make(1.0, config::OnSampleError::kFail);
  EXPECT_TRUE(log.take({}, {.published = 10}).ok());
  EXPECT_EQ(log.take({bad(0, 3)}, {.published = 10}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, StopMeansTheFirstOfThisStart) {
  auto log = make(1.0, config::OnSampleError::kFail, {.count = 5, .step = 10, .ticket = 10});
  EXPECT_TRUE(log.take({}, {.published = 10}).ok());
  EXPECT_EQ(log.take({bad(12, 3)}, {.published = 10}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, NonsenseFromABrokenReaderIsNotedWithoutAnOrigin) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(~0ull, ~0ull)}, {}).ok());
  EXPECT_EQ(lines(), 1u);
  EXPECT_EQ(log.count_before(5), 0u);
}

TEST_F(BadSampleLogTest, AListThatCannotBeWrittenDoesNotEndTheRun) {
  settings_.bad_sample_path = path("no/such/folder/list.jsonl");
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7), bad(1, 8)}, {}).ok());
  EXPECT_EQ(lines(), 0u);
  EXPECT_EQ(log.count(), 2u);
}

}  // namespace
}  // namespace stoker::feeder
