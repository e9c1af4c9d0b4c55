#include "daemon/train/inspection_board.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

class InspectionBoardTest : public testing::Test {
 protected:
  static std::string row(uint64_t number) { return "{\"step\":" + std::to_string(number) + "}"; }
  json::object read(uint64_t inspection, uint64_t after) {
    const auto answer = board_.read(inspection, after);
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    return answer.ok() ? json::parse(*answer).as_object() : json::object();
  }
  static std::vector<int64_t> steps(const json::object& answer) {
    std::vector<int64_t> steps;
    for (const auto& one : answer.at("records").as_array())
      steps.push_back(one.at("step").as_int64());
    return steps;
  }

  ManualClock clock_;
  InspectionBoard board_{clock_};
};

TEST_F(InspectionBoardTest, ReturnsEachRecordOnce) {
  const uint64_t inspection = *board_.open();
  EXPECT_TRUE(read(inspection, 0).at("records").as_array().empty());
  board_.push(inspection, row(10));
  board_.push(inspection, row(20));
  auto answer = read(inspection, 0);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(answer.at("next").to_number<int>(), 2);
  EXPECT_EQ(answer.at("dropped").to_number<int>(), 0);
  board_.push(inspection, row(30));
  answer = read(inspection, 2);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{30}));
  EXPECT_EQ(answer.at("next").to_number<int>(), 3);
}

TEST_F(InspectionBoardTest, ReturnsRecordsAgainForSameCursor) {
  const uint64_t inspection = *board_.open();
  board_.push(inspection, row(1));
  EXPECT_EQ(steps(read(inspection, 0)), (std::vector<int64_t>{1}));
  EXPECT_EQ(steps(read(inspection, 0)), (std::vector<int64_t>{1}));
}

TEST_F(InspectionBoardTest, DropsOldestRecordsForSlowClientAndReportsCount) {
  const uint64_t inspection = *board_.open();
  const size_t more = 5;
  for (uint64_t i = 1; i <= InspectionBoard::kMaxRecords + more; ++i)
    board_.push(inspection, row(i));
  const auto answer = read(inspection, 0);
  EXPECT_EQ(answer.at("dropped").to_number<size_t>(), more);
  EXPECT_EQ(steps(answer).size(), InspectionBoard::kMaxRecords);
  EXPECT_EQ(steps(answer).front(), static_cast<int64_t>(more + 1));
  EXPECT_EQ(
      read(inspection, answer.at("next").to_number<uint64_t>()).at("dropped").to_number<int>(), 0);
}

TEST_F(InspectionBoardTest, LimitsBufferedBytes) {
  const uint64_t inspection = *board_.open();
  const std::string large =
      "{\"step\":1,\"x\":\"" + std::string(InspectionBoard::kMaxBytes / 4, 'x') + "\"}";
  for (int i = 0; i < 8; ++i) board_.push(inspection, large);
  auto answer = read(inspection, 0);
  EXPECT_GE(answer.at("dropped").to_number<int>(), 4);
  EXPECT_EQ(steps(answer).size(), 1u);  // larger than kReplyBytes, but one record is always sent
  size_t in_all = 1;
  for (; !steps(answer).empty() && in_all <= 8; ++in_all)
    answer = read(inspection, answer.at("next").to_number<uint64_t>());
  EXPECT_LE(in_all, 6u);
}

TEST_F(InspectionBoardTest, ExpiresInspectionThatIsNotRead) {
  const uint64_t inspection = *board_.open();
  clock_.advance(InspectionBoard::kLease);
  EXPECT_TRUE(board_.is_wanted(inspection));
  (void)read(inspection, 0);
  clock_.advance(InspectionBoard::kLease);
  EXPECT_TRUE(board_.is_wanted(inspection));
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(board_.is_wanted(inspection));
  EXPECT_EQ(board_.read(inspection, 0).status().code(), StatusCode::kNotFound);
  board_.push(inspection, row(1));  // ignored
}

TEST_F(InspectionBoardTest, PeekReturnsSameReplyAndChangesNothing) {
  const uint64_t inspection = *board_.open();
  for (const uint64_t number : {10, 20, 30}) board_.push(inspection, row(number));
  board_.end_all("training ended");
  const auto peeked = [&](uint64_t after) {
    const auto answer = board_.peek(inspection, after);
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    return answer.ok() ? *answer : "";
  };
  const std::string all = peeked(0), last = peeked(2), none = peeked(99);
  EXPECT_THAT(last, HasSubstr(R"("records":[{"step":30}],"next":3,"dropped":0)"));
  EXPECT_THAT(none, HasSubstr(R"("records":[],"next":3,"dropped":0)"));
  EXPECT_EQ(peeked(0), all) << "records are not discarded, the inspection is not removed";
  clock_.advance(InspectionBoard::kLease);
  EXPECT_EQ(peeked(0), all);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(board_.is_wanted(inspection)) << "the lease is not renewed";
  EXPECT_EQ(board_.peek(inspection, 0).status().code(), StatusCode::kNotFound);

  const uint64_t other = *board_.open();
  for (const uint64_t number : {10, 20, 30}) board_.push(other, row(number));
  const std::string before = *board_.peek(other, 1);
  EXPECT_EQ(*board_.read(other, 1), before);
}

TEST_F(InspectionBoardTest, LimitsOpenInspectionsUntilOneIsClosed) {
  std::vector<uint64_t> inspections;
  for (size_t i = 0; i < InspectionBoard::kMaxInspections; ++i)
    inspections.push_back(*board_.open());
  EXPECT_EQ(board_.open().status().code(), StatusCode::kBusy);
  EXPECT_TRUE(board_.close(inspections[2]).ok());
  EXPECT_FALSE(board_.is_wanted(inspections[2]));
  EXPECT_EQ(board_.close(inspections[2]).code(), StatusCode::kNotFound);
  EXPECT_TRUE(board_.open().ok());
  clock_.advance(InspectionBoard::kLease + std::chrono::seconds(1));
  EXPECT_TRUE(board_.open().ok());  // the others expired
}

TEST_F(InspectionBoardTest, ReportsEndReasonAfterLastRecord) {
  const uint64_t inspection = *board_.open();
  board_.push(inspection, row(1));
  board_.end_all("training ended");
  const auto answer = read(inspection, 0);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{1}));
  EXPECT_EQ(answer.at("end_reason").as_string(), "training ended");
  EXPECT_EQ(board_.read(inspection, 1).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::train
