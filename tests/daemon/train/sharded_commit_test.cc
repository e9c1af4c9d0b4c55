#include "daemon/train/sharded_commit.h"

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/thread_group.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace stoker::train {
namespace {

using checkpoint::CheckpointContent;
using checkpoint::CheckpointStore;
using checkpoint::Manifest;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kRanks = 3;

class ShardedCommitTest : public testing::Test {
 protected:
  // Each rank has its store, that of the chief by default.
  void open(const ShardedCommitOptions& options = {.poll_interval = std::chrono::milliseconds(1)}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      stores_.push_back(
          std::make_unique<CheckpointStore>(directories_.at(index(rank)), default_file_system()));
      commits_.push_back(std::make_unique<ShardedCommit>(group_.rank(rank), *stores_.back(),
                                                         default_file_system(), options));
    }
  }
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  ShardedCommit& rank(int rank) { return *commits_[index(rank)]; }

  CheckpointContent content(int rank, uint64_t step) const {
    CheckpointContent content;
    content.manifest.step = step;
    content.num_shards = kRanks;
    content.ranges = {{"exp_avg.w", {{6}, static_cast<uint64_t>(2 * rank)}}};
    content.optim = {{{"exp_avg.w", DType::kF32, {2}},
                      std::as_bytes(std::span(values_).subspan(2 * index(rank), 2))}};
    return content;
  }
  // In threads, as CheckpointWriter does. `attempts`: of the chief.
  std::vector<Result<Manifest>> commit(uint64_t step, int attempts = 1) {
    std::vector<Result<Manifest>> results(kRanks, Status(StatusCode::kInternal, "did not run"));
    std::vector<std::jthread> threads;
    for (int r = 0; r < kRanks; ++r)
      threads.emplace_back([&, r] {
        Result<Manifest>& result = results[index(r)];
        result = rank(r).commit(content(r, step), stop_.get_token());
        for (int attempt = 1; r == 0 && attempt < attempts && !result.ok(); ++attempt) {
          if (between_attempts) between_attempts(result.status());
          result = rank(r).commit(content(r, step), stop_.get_token());
        }
        rank(r).announce(result, stop_.get_token());
      });
    threads.clear();
    return results;
  }
  // As the chief does.
  void send_begun(int snapshot, const std::string& directory = ".tmp-step-1") {
    const std::string number = std::to_string(snapshot);
    ASSERT_TRUE(group_.rank(0)
                    .send_text("checkpoint", R"({"segment":1,"snapshot":)" + number +
                                                 R"(,"event":"begun","directory":")" + directory +
                                                 R"(","error":"","name":"","bytes":0,"sha256":""})")
                    .ok());
  }
  void expect_saved(uint64_t step) {
    const auto opened =
        CheckpointStore::open_verified(directory_ + "/" + CheckpointStore::checkpoint_name(step));
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    const auto optimizer = opened->open_optimizer();
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    std::vector<float> read(values_.size());
    ASSERT_TRUE((*optimizer)->read("exp_avg.w", std::as_writable_bytes(std::span(read))).ok());
    EXPECT_EQ(read, values_);
  }
  void expect_no_leftovers() const {
    for (const auto& entry : fs::directory_iterator(directory_))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }

  test::TemporaryDirectory scratch_;
  const std::string directory_ = scratch_ / "checkpoints";
  std::vector<std::string> directories_{kRanks, directory_};
  const std::vector<float> values_{1, 2, 3, 4, 5, 6};
  ThreadGroup group_{kRanks};
  std::vector<std::unique_ptr<CheckpointStore>> stores_;
  std::vector<std::unique_ptr<ShardedCommit>> commits_;
  std::function<void(const Status&)> between_attempts;
  std::stop_source stop_;
};

TEST_F(ShardedCommitTest, CommitsFilesOfAllRanks) {
  open();
  for (const uint64_t step : {8, 16}) {
    for (const auto& result : commit(step)) {
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->step, step);
    }
    expect_saved(step);
  }
  expect_no_leftovers();
}

TEST_F(ShardedCommitTest, RetriesAfterErrorOfAnyRank) {
  directories_[2] = scratch_ / "not-mounted";
  open();
  between_attempts = [this](const Status& error) {
    EXPECT_THAT(error.message(), HasSubstr("rank 2: "));
    EXPECT_THAT(error.message(), HasSubstr("not-mounted"));
    fs::create_symlink(directory_, directories_[2]);
  };
  for (const auto& result : commit(8, 2)) EXPECT_TRUE(result.ok()) << result.status().to_string();
  expect_saved(8);
  expect_no_leftovers();
}

TEST_F(ShardedCommitTest, ReportsErrorToAllRanksAndCommitsNextSnapshot) {
  directories_[1] = scratch_ / "not-mounted";
  open();
  const auto results = commit(8);
  EXPECT_THAT(results[0].status().message(), HasSubstr("rank 1: "));
  for (const int other : {1, 2})
    EXPECT_THAT(results[index(other)].status().message(), HasSubstr("rank 0: "));
  expect_no_leftovers();
  fs::create_symlink(directory_, directories_[1]);
  for (const auto& result : commit(8)) EXPECT_TRUE(result.ok()) << result.status().to_string();
  expect_saved(8);
}

// As after a change of train.max_steps: the group and its texts stay, the snapshots are counted from 1 again.
TEST_F(ShardedCommitTest, CommitsInSecondSegmentOfGroup) {
  ShardedCommitOptions options{.poll_interval = std::chrono::milliseconds(1)};
  open(options);
  for (const auto& result : commit(8)) ASSERT_TRUE(result.ok()) << result.status().to_string();
  commits_.clear();
  stores_.clear();
  options.segment = 2;
  {
    // Before the chief has begun, there is only its last text of the first segment.
    CheckpointStore store(directory_, default_file_system());
    ShardedCommit early(group_.rank(1), store, default_file_system(), options);
    std::stop_source stopped;
    stopped.request_stop();
    EXPECT_EQ(early.commit(content(1, 16), stopped.get_token()).status().code(),
              StatusCode::kCancelled);
  }
  open(options);
  for (const auto& result : commit(16)) EXPECT_TRUE(result.ok()) << result.status().to_string();
  expect_saved(16);
  expect_no_leftovers();
}

TEST_F(ShardedCommitTest, NamesRankThatDoesNotWrite) {
  open({.timeout = std::chrono::milliseconds(0), .poll_interval = std::chrono::milliseconds(1)});
  const auto result = rank(0).commit(content(0, 8), stop_.get_token());
  EXPECT_EQ(result.status().code(), StatusCode::kTimedOut);
  EXPECT_THAT(
      result.status().message(),
      HasSubstr("rank 1 has not written its file of the checkpoint within 0 s; see its log, "
                "or raise distributed.start_timeout_seconds"));
  expect_no_leftovers();
}

TEST_F(ShardedCommitTest, EndsWaitForChiefAndTakesPartInNextSnapshot) {
  open({.timeout = std::chrono::milliseconds(0), .poll_interval = std::chrono::milliseconds(1)});
  for (const int other : {1, 2}) {
    const auto result = rank(other).commit(content(other, 8), stop_.get_token());
    EXPECT_EQ(result.status().code(), StatusCode::kTimedOut);
    EXPECT_THAT(result.status().message(),
                HasSubstr("rank 0 has not continued the checkpoint within 0 s; see its log, or "
                          "raise distributed.start_timeout_seconds"));
  }
  rank(0).announce(Status(StatusCode::kIoError, "not begun"), stop_.get_token());
  send_begun(2);
  fs::create_directories(directory_ + "/.tmp-step-1");
  for (const int other : {1, 2}) {
    (void)rank(other).commit(content(other, 16), stop_.get_token());
    EXPECT_THAT(*group_.rank(0).receive_text("checkpoint", other),
                HasSubstr(R"("snapshot":2,"event":"written")"));
  }
}

TEST_F(ShardedCommitTest, TakesPartAgainAfterMissedEnd) {
  open({.timeout = std::chrono::milliseconds(0), .poll_interval = std::chrono::milliseconds(1)});
  send_begun(3);
  fs::create_directories(directory_ + "/.tmp-step-1");
  const auto missed = rank(1).commit(content(1, 8), stop_.get_token());
  EXPECT_EQ(missed.status().code(), StatusCode::kIoError);
  EXPECT_THAT(missed.status().message(), HasSubstr("rank 0 is at another checkpoint; whether"));
  (void)rank(1).commit(content(1, 16), stop_.get_token());
  EXPECT_THAT(*group_.rank(0).receive_text("checkpoint", 1),
              HasSubstr(R"("snapshot":3,"event":"written")"));
}

// As at the end of a run: the texts of the chief must last until all ranks have read them.
TEST_F(ShardedCommitTest, InformsAllRanksThoughOthersHaveExited) {
  open();
  const Status failed(StatusCode::kIoError, "disk full");
  const auto inform = [&](int other) {
    EXPECT_THAT(rank(other).commit(content(other, 8), stop_.get_token()).status().message(),
                HasSubstr("disk full"));
  };
  std::atomic<bool> is_announced = false;
  std::jthread chief([&] {
    rank(0).announce(failed, stop_.get_token());
    is_announced = true;
  });
  inform(2);
  group_.exit(2);
  // Longer than the interval in which the chief checks the ranks.
  while (group_.checks() < 2 && !is_announced) std::this_thread::yield();
  EXPECT_FALSE(is_announced);
  inform(1);
}

TEST_F(ShardedCommitTest, NamesRankThatHasExited) {
  open();
  group_.exit(1);
  const auto result = rank(0).commit(content(0, 8), stop_.get_token());
  EXPECT_EQ(result.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(result.status().message(), HasSubstr("rank 1 exited"));
  expect_no_leftovers();
}

TEST_F(ShardedCommitTest, EndsWaitOnStop) {
  open();
  stop_.request_stop();
  for (const int r : {0, 1}) {
    const auto result = rank(r).commit(content(r, 8), stop_.get_token());
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
    EXPECT_THAT(result.status().message(), HasSubstr("stopped while other ranks write"));
  }
  expect_no_leftovers();
}

// As the trainer does that has lost rank 1.
TEST_F(ShardedCommitTest, CommitsNothingIfItIsStoppedBeforeAllRanksHaveReported) {
  open();
  const std::jthread other([this] { (void)rank(1).commit(content(1, 8), stop_.get_token()); });
  const std::jthread trainer([this] {
    EXPECT_TRUE(test::eventually([this] {
      return group_.rank(0).receive_text("checkpoint", 1)->find("written") != std::string::npos;
    }));
    group_.exit(1);
    stop_.request_stop();
  });
  const auto result = rank(0).commit(content(0, 8), stop_.get_token());
  EXPECT_EQ(result.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(fs::exists(directory_ + "/" + CheckpointStore::checkpoint_name(8)));
  expect_no_leftovers();
}

// Bytes of the store can be another process's.
TEST_F(ShardedCommitTest, WritesOnlyIntoDirectoryOfUnfinishedCheckpoint) {
  open();
  std::jthread other([this] { (void)rank(1).commit(content(1, 8), stop_.get_token()); });
  send_begun(1, "../.tmp-step-1");
  std::string answer;
  while (answer.empty()) {
    answer = *group_.rank(0).receive_text("checkpoint", 1);
    std::this_thread::yield();
  }
  EXPECT_THAT(answer, HasSubstr("'../.tmp-step-1' is no directory of a checkpoint"));
  stop_.request_stop();
}

TEST_F(ShardedCommitTest, RejectsReportOfAnotherFile) {
  open();
  std::jthread other([this] {
    std::string text;
    while (text.empty()) text = *group_.rank(1).receive_text("checkpoint", 0);
    const size_t at = text.find("begun");
    text.replace(at, 5, "written");
    text.replace(text.find(R"("name":"")"), 9, R"("name":"manifest.json")");
    (void)group_.rank(1).send_text("checkpoint", text);
  });
  const auto result = rank(0).commit(content(0, 8), stop_.get_token());
  EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(result.status().message(), HasSubstr("rank 1 reported another file than its own"));
  expect_no_leftovers();
}

}  // namespace
}  // namespace stoker::train
