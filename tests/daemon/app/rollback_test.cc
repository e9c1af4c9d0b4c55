#include "daemon/app/rollback.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "daemon/app/reduce_learning_rate.h"
#include "tests/support/temporary_directory.h"

namespace stoker::app {
namespace {

namespace fs = std::filesystem;

class RollbackTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = run_ / "rollback.json"; }
  void have_checkpoints(std::initializer_list<uint64_t> steps) {
    for (const uint64_t step : steps)
      fs::create_directories(run_ / "checkpoints/" +
                             checkpoint::CheckpointStore::checkpoint_name(step));
  }
  Status roll_back_from(std::optional<uint64_t> resumed_from, uint64_t times) {
    return roll_back(default_file_system(), store_(), run::RunLayout(run_.path()), resumed_from,
                     times);
  }
  Rollback recorded() {
    const auto read = read_rollback(file_);
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() && *read ? **read : Rollback{};
  }
  uint64_t newest() { return store_().list()->back().step; }

  const test::TemporaryDirectory run_;
  std::string file_;

 private:
  checkpoint::CheckpointStore store_() {
    return checkpoint::CheckpointStore(run_ / "checkpoints", default_file_system());
  }
};

TEST_F(RollbackTest, ReadsNothingBeforeFirstRollback) {
  const auto read = read_rollback(file_);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->has_value());
}

TEST_F(RollbackTest, RollsBackToNewestCheckpointAndCountsAttempts) {
  have_checkpoints({5, 10});
  ASSERT_TRUE(roll_back_from(std::nullopt, 0).ok());
  EXPECT_EQ(recorded().to_step, 10u);
  EXPECT_EQ(recorded().times, 1u);
  EXPECT_EQ(newest(), 10u);
}

TEST_F(RollbackTest, RollsBackFurtherWhenNewestCheckpointDidNotHelp) {
  have_checkpoints({5, 10});
  ASSERT_TRUE(roll_back_from(10, 1).ok());
  EXPECT_EQ(recorded().to_step, 5u);
  EXPECT_EQ(recorded().times, 2u);
  EXPECT_EQ(newest(), 5u) << "a restart after a kill must not resume from step 10";
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/archived.1.step-000000010")) << "nothing is deleted";
}

TEST_F(RollbackTest, ReusesOnlyCheckpoint) {
  have_checkpoints({5});
  ASSERT_TRUE(roll_back_from(5, 3).ok());
  EXPECT_EQ(recorded().to_step, 5u);
  EXPECT_EQ(recorded().times, 4u);
}

TEST_F(RollbackTest, UsesCheckpointNewerThanLastRollback) {
  have_checkpoints({5, 10, 15});
  ASSERT_TRUE(roll_back_from(5, 2).ok());
  EXPECT_EQ(recorded().to_step, 15u);
}

TEST_F(RollbackTest, FailsWithoutCheckpoint) {
  const Status status = roll_back_from(std::nullopt, 0);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("no checkpoint yet"), std::string::npos);
}

TEST_F(RollbackTest, ParsesItsText) {
  const auto parsed = parse_rollback(to_json({.to_step = 20, .times = 3}));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->to_step, 20u);
  EXPECT_EQ(parsed->times, 3u);
  EXPECT_FALSE(parse_rollback(""));
  EXPECT_FALSE(parse_rollback("{}"));
  EXPECT_FALSE(parse_rollback("[]"));
}

TEST_F(RollbackTest, ReducesLearningRateOncePerUnrecordedRollback) {
  const config::TrainConfig config{.rollback_lr_factor = 0.5};
  train::LiveState state{.lr_scale = 2};
  reduce_learning_rate(*read_rollback(file_), config, 10, state);
  EXPECT_EQ(state.lr_scale, 2) << "the run was never rolled back";

  have_checkpoints({10});
  ASSERT_TRUE(roll_back_from(std::nullopt, 2).ok());
  state.rollbacks = 1;
  reduce_learning_rate(*read_rollback(file_), config, 20, state);
  EXPECT_EQ(state.lr_scale, 2) << "the run has passed the rollback step";
  // A second start, after the first was killed, must give the same result.
  for (int start = 0; start < 2; ++start) {
    train::LiveState saved = state;
    reduce_learning_rate(*read_rollback(file_), config, 10, saved);
    EXPECT_EQ(saved.lr_scale, 0.5) << "two of three times";
    EXPECT_EQ(saved.rollbacks, 3u);
  }
}

TEST_F(RollbackTest, RejectsInvalidFileWithSuggestedFix) {
  for (const char* const text : {"", "{}", "[1]", R"({"step":-1,"attempts":1})", R"({"step":1})"}) {
    std::ofstream(file_) << text;
    const auto read = read_rollback(file_);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(read.status().message().find("remove it"), std::string::npos);
  }
}

}  // namespace
}  // namespace stoker::app
