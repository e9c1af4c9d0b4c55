#include "daemon/train/tap_board.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::train {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

class TapBoardTest : public testing::Test {
 protected:
  static std::string row(uint64_t number) { return "{\"step\":" + std::to_string(number) + "}"; }
  json::object read(uint64_t tap, uint64_t after) {
    const auto answer = board_.read(tap, after);
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
  TapBoard board_{clock_};
};

TEST_F(TapBoardTest, EachRowIsReadOnce) {
  const uint64_t tap = *board_.open();
  EXPECT_TRUE(read(tap, 0).at("records").as_array().empty());
  board_.push(tap, row(10));
  board_.push(tap, row(20));
  auto answer = read(tap, 0);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(answer.at("next").to_number<int>(), 2);
  EXPECT_EQ(answer.at("dropped").to_number<int>(), 0);
  board_.push(tap, row(30));
  answer = read(tap, 2);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{30}));
  EXPECT_EQ(answer.at("next").to_number<int>(), 3);
}

TEST_F(TapBoardTest, AnAnswerThatWasLostCanBeAskedForAgain) {
  const uint64_t tap = *board_.open();
  board_.push(tap, row(1));
  EXPECT_EQ(steps(read(tap, 0)), (std::vector<int64_t>{1}));
  EXPECT_EQ(steps(read(tap, 0)), (std::vector<int64_t>{1}));
}

TEST_F(TapBoardTest, ASlowReaderLosesTheOldestRowsAndIsToldHowMany) {
  const uint64_t tap = *board_.open();
  const size_t more = 5;
  for (uint64_t i = 1; i <= TapBoard::kRows + more; ++i) board_.push(tap, row(i));
  const auto answer = read(tap, 0);
  EXPECT_EQ(answer.at("dropped").to_number<size_t>(), more);
  EXPECT_EQ(steps(answer).size(), TapBoard::kRows);
  EXPECT_EQ(steps(answer).front(), static_cast<int64_t>(more + 1));
  EXPECT_EQ(read(tap, answer.at("next").to_number<uint64_t>()).at("dropped").to_number<int>(), 0);
}

TEST_F(TapBoardTest, LongRowsAreBoundedByTheirBytes) {
  const uint64_t tap = *board_.open();
  const std::string large = "{\"step\":1,\"x\":\"" + std::string(TapBoard::kBytes / 4, 'x') + "\"}";
  for (int i = 0; i < 8; ++i) board_.push(tap, large);
  auto answer = read(tap, 0);
  EXPECT_GE(answer.at("dropped").to_number<int>(), 4);
  EXPECT_EQ(steps(answer).size(), 1u);  // above kReplyBytes: one row goes all the same
  size_t in_all = 1;
  for (; !steps(answer).empty(); ++in_all)
    answer = read(tap, answer.at("next").to_number<uint64_t>());
  EXPECT_LE(in_all, 6u);
}

TEST_F(TapBoardTest, WhatNobodyReadsEnds) {
  const uint64_t tap = *board_.open();
  clock_.advance(TapBoard::kLease);
  EXPECT_TRUE(board_.is_wanted(tap));
  (void)read(tap, 0);
  clock_.advance(TapBoard::kLease);
  EXPECT_TRUE(board_.is_wanted(tap));
  clock_.advance(std::chrono::seconds(1));
  EXPECT_FALSE(board_.is_wanted(tap));
  EXPECT_EQ(board_.read(tap, 0).status().code(), Code::kNotFound);
  board_.push(tap, row(1));  // no harm
}

TEST_F(TapBoardTest, ThereAreOnlySoManyAndAClosedOneMakesRoom) {
  std::vector<uint64_t> taps;
  for (size_t i = 0; i < TapBoard::kTaps; ++i) taps.push_back(*board_.open());
  EXPECT_EQ(board_.open().status().code(), Code::kBusy);
  EXPECT_TRUE(board_.close(taps[2]).ok());
  EXPECT_FALSE(board_.is_wanted(taps[2]));
  EXPECT_EQ(board_.close(taps[2]).code(), Code::kNotFound);
  EXPECT_TRUE(board_.open().ok());
  clock_.advance(TapBoard::kLease + std::chrono::seconds(1));
  EXPECT_TRUE(board_.open().ok());  // nobody read the others
}

TEST_F(TapBoardTest, TheEndComesAfterTheLastRow) {
  const uint64_t tap = *board_.open();
  board_.push(tap, row(1));
  board_.end_all("training ended");
  const auto answer = read(tap, 0);
  EXPECT_EQ(steps(answer), (std::vector<int64_t>{1}));
  EXPECT_EQ(answer.at("end_reason").as_string(), "training ended");
  EXPECT_EQ(board_.read(tap, 1).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace stoker::train
