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
  BadSampleLog make(double limit = 0.001, config::OnBadSample policy = config::OnBadSample::kSkip) {
    return BadSampleLog({.on_bad_sample = policy, .bad_sample_limit = limit}, *data_, kBatch,
                        settings_.bad_sample_path, clock_);
  }
  static ring::BadSample bad(uint64_t ticket, uint64_t sample) {
    return {.ticket = ticket, .sample = sample, .code = Code::kCorrupt, .reason = "torn"};
  }
  uint64_t lines() const {
    const auto text = read_file(settings_.bad_sample_path, 1 << 20);
    return text.ok() ? static_cast<uint64_t>(std::count(text->begin(), text->end(), '\n')) : 0;
  }
  ManualClock clock_;
};

TEST_F(BadSampleLogTest, ASingleBadSampleIsNotedAndNotFatal) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7)}, {.published = 1}).ok());
  EXPECT_EQ(log.bad_samples(), 1u);
  EXPECT_EQ(lines(), 1u);
}

TEST_F(BadSampleLogTest, AReportThatIsMadeAgainAfterADeathCountsOnce) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7), bad(1, 8)}, {}).ok());
  EXPECT_TRUE(log.take({bad(1, 7), bad(2, 7)}, {}).ok());
  EXPECT_EQ(log.bad_samples(), 3u);
  EXPECT_EQ(lines(), 3u);
}

TEST_F(BadSampleLogTest, ThePartIsJudgedOnceThereAreEnoughSamples) {
  auto log = make(0.01);
  EXPECT_TRUE(log.take({bad(1, 1), bad(1, 2), bad(1, 3)}, {.published = 2}).ok())
      << "3 of 48: too few to judge";
  EXPECT_TRUE(log.take({}, {.published = 99}).ok()) << "3 of 1600: within the limit";
  std::vector<ring::BadSample> more;
  for (uint64_t i = 0; i < 14; ++i) more.push_back(bad(50, i));
  const Status verdict = log.take(more, {.published = 99});
  EXPECT_EQ(verdict.code(), Code::kCorrupt);
  EXPECT_THAT(verdict.message(), HasSubstr("17 of 1600"));
}

TEST_F(BadSampleLogTest, TenBadOnesAreJudgedAtOnce) {
  auto log = make(0.01);
  std::vector<ring::BadSample> reports;
  for (uint64_t i = 0; i < 10; ++i) reports.push_back(bad(0, i));
  EXPECT_EQ(log.take(reports, {.published = 0}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, ReportsThatWereLostCountToo) {
  auto log = make(0.01);
  EXPECT_EQ(log.take({bad(0, 1)}, {.published = 0, .lost_reports = 9}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, ALimitOfOneNeverEndsTheRun) {
  auto log = make(1.0);
  std::vector<ring::BadSample> reports;
  for (uint64_t i = 0; i < 400; ++i) reports.push_back(bad(0, i));
  EXPECT_TRUE(log.take(reports, {.published = 0}).ok());
  EXPECT_EQ(lines(), 400u);
}

TEST_F(BadSampleLogTest, StopEndsTheRunAtTheFirst) {
  auto log = make(1.0, config::OnBadSample::kStop);
  EXPECT_TRUE(log.take({}, {.published = 10}).ok());
  EXPECT_EQ(log.take({bad(0, 3)}, {.published = 10}).code(), Code::kCorrupt);
}

TEST_F(BadSampleLogTest, NonsenseFromABrokenReaderIsNotedWithoutAnOrigin) {
  auto log = make();
  EXPECT_TRUE(log.take({bad(~0ull, ~0ull)}, {}).ok());
  EXPECT_EQ(lines(), 1u);
}

TEST_F(BadSampleLogTest, AListThatCannotBeWrittenDoesNotEndTheRun) {
  settings_.bad_sample_path = path("no/such/folder/list.jsonl");
  auto log = make();
  EXPECT_TRUE(log.take({bad(1, 7), bad(1, 8)}, {}).ok());
  EXPECT_EQ(log.bad_samples(), 2u);
}

}  // namespace
}  // namespace stoker::feeder
