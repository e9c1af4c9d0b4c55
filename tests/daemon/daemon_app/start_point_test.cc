#include "daemon/daemon_app/start_point.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace stoker::daemon_app {
namespace {

namespace fs = std::filesystem;

class StartPointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "stoker-start-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
    fs::create_directories(run_ + "/checkpoints");
  }
  void TearDown() override { fs::remove_all(run_); }
  void make_checkpoint(uint64_t step) {
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    const float weight = 1.0f;
    content.model = {{{"w", DType::kF32, {1}}, std::as_bytes(std::span(&weight, 1))}};
    const auto committed = store().commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  checkpoint::CheckpointStore store() {
    return checkpoint::CheckpointStore(run_ + "/checkpoints", real_files());
  }

  std::string run_;
};

TEST_F(StartPointTest, AnEmptyRunBeginsAtNothing) {
  const auto start = find_start_point(store(), "");
  ASSERT_TRUE(start.ok());
  EXPECT_FALSE(start->has_value());
}

TEST_F(StartPointTest, TheNewestValidOneIsTakenOrTheOneThatIsNamed) {
  make_checkpoint(10);
  make_checkpoint(20);
  EXPECT_EQ((*find_start_point(store(), ""))->manifest().step, 20u);
  EXPECT_EQ((*find_start_point(store(), run_ + "/checkpoints/step-000000010"))->manifest().step,
            10u);
  EXPECT_FALSE(find_start_point(store(), run_ + "/checkpoints/step-000000030").ok());
}

TEST_F(StartPointTest, AllDamagedIsAnErrorThatNamesTheWayOut) {
  make_checkpoint(10);
  std::ofstream(run_ + "/checkpoints/step-000000010/model.safetensors", std::ios::app) << "x";
  const auto start = find_start_point(store(), "");
  EXPECT_EQ(start.status().code(), Code::kCorrupt);
  EXPECT_NE(start.status().message().find("--fresh"), std::string::npos);
}

TEST_F(StartPointTest, LaterCheckpointsAreSetAsideAndNeverDeleted) {
  for (const uint64_t step : {10u, 20u, 30u}) make_checkpoint(step);
  auto checkpoints = store();
  ASSERT_TRUE(set_aside_later(real_files(), checkpoints, 10).ok());
  ASSERT_EQ(checkpoints.list()->size(), 1u);
  make_checkpoint(20);
  ASSERT_TRUE(set_aside_later(real_files(), checkpoints, 10).ok());
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/set-aside.1.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/set-aside.2.step-000000020/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoints/set-aside.1.step-000000030/model.safetensors"));
}

TEST_F(StartPointTest, FreshMovesTheOldRunAsideAndOnlyIfThereIsOne) {
  fs::remove_all(run_ + "/checkpoints");
  ASSERT_TRUE(set_aside_run(real_files(), run_).ok());
  EXPECT_FALSE(fs::exists(run_ + "/before-1"));
  fs::create_directories(run_ + "/checkpoints");
  make_checkpoint(10);
  std::ofstream(run_ + "/config.yaml") << "x";
  ASSERT_TRUE(set_aside_run(real_files(), run_).ok());
  EXPECT_TRUE(fs::exists(run_ + "/before-1/checkpoints/step-000000010/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_ + "/before-1/config.yaml"));
  EXPECT_FALSE(fs::exists(run_ + "/checkpoints"));
}

TEST(SameRun, SettingsThatMakeAnotherRunAreNamedAndOthersAreFine) {
  config::Config before;
  before.data["train"].kind = config::DatasetKind::kText;
  before.data["train"].path = "corpus.txt";
  config::Config now = before;
  now.train.steps = before.train.steps * 2;
  now.checkpoint.every_steps = 7;
  now.data["train"].path = "moved/corpus.txt";
  EXPECT_TRUE(check_same_run(before, now).ok()) << check_same_run(before, now).message();
  now.train.batch = 999;
  now.model.width = 384;
  const Status refused = check_same_run(before, now);
  EXPECT_EQ(refused.code(), Code::kMismatch);
  EXPECT_NE(refused.message().find("train.batch"), std::string::npos);
  EXPECT_NE(refused.message().find("model.width"), std::string::npos);
}

config::Config mixed() {
  config::Config config;
  config.data["train"].kind = config::DatasetKind::kMixture;
  config.data["train"].of = {"code", "prose"};
  config.data["code"].path = "code";
  config.data["prose"].path = "prose";
  config.data["valid"].path = "valid";
  return config;
}

std::string refusal_of(const config::Config& before, const config::Config& now) {
  const Status status = check_same_run(before, now);
  EXPECT_EQ(status.code(), Code::kMismatch);
  return status.message();
}

TEST(SameRun, TheOrderOfSamplesStaysWhatItWas) {
  config::Config before = mixed();
  before.feed.shuffle = config::Shuffle::kWindow;
  config::Config now = before;
  now.feed.window = 77;
  EXPECT_NE(refusal_of(before, now).find("feed.window: 10000 -> 77"), std::string::npos);
  now = before;
  now.feed.last_batch = config::LastBatch::kDrop;
  EXPECT_NE(refusal_of(before, now).find("feed.last_batch: span -> drop"), std::string::npos);
  now = before;
  now.feed.shuffle = config::Shuffle::kShards;
  EXPECT_NE(refusal_of(before, now).find("feed.shuffle: window -> shards"), std::string::npos);
  now = before;
  now.feed.shards_open = 99;  // which shuffle: window does not read
  EXPECT_TRUE(check_same_run(before, now).ok());
}

TEST(SameRun, TheSetsOfAMixtureArePartOfTheRunAndOthersAreNot) {
  const config::Config before = mixed();
  config::Config now = before;
  now.data["code"].path = "moved";
  now.data["valid"].take = 5;
  now.data["more"].path = "more";
  EXPECT_TRUE(check_same_run(before, now).ok()) << check_same_run(before, now).message();
  now.data["prose"].repeat = 2;
  EXPECT_NE(refusal_of(before, now).find("data.prose.repeat: 1 -> 2"), std::string::npos);
  now = before;
  now.data["train"].of = {"code"};
  EXPECT_NE(refusal_of(before, now).find("data.train.of"), std::string::npos);
  now = before;
  now.data["train"].weights = {1, 2};
  EXPECT_NE(refusal_of(before, now).find("data.train.weights"), std::string::npos);
}

}  // namespace
}  // namespace stoker::daemon_app
