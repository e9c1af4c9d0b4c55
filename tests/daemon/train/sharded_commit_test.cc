#include "daemon/train/sharded_commit.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/train/thread_group.h"
#include "tests/support/eventually.h"
#include "tests/support/faulty_files.h"
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
  // Each rank has its store and file system, those of the chief by default.
  void open(const ShardedCommitOptions& options = {.poll_interval = std::chrono::milliseconds(1)}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      FileSystem& files = *files_.at(index(rank));
      stores_.push_back(std::make_unique<CheckpointStore>(directories_.at(index(rank)), files));
      commits_.push_back(
          std::make_unique<ShardedCommit>(group_.rank(rank), *stores_.back(), files, options));
    }
  }
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  ShardedCommit& rank(int rank) { return *commits_[index(rank)]; }
  // Of all ranks, so that files of two steps do not fit together unnoticed.
  static std::vector<float> values_of(uint64_t step) {
    std::vector<float> values;
    for (uint64_t i = 0; i < 2 * kRanks; ++i) values.push_back(static_cast<float>(10 * step + i));
    return values;
  }

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
    values_ = values_of(step);
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
  static std::string path_in(const std::string& directory, uint64_t step) {
    return directory + "/" + CheckpointStore::checkpoint_name(step);
  }
  static void expect_saved_in(const std::string& directory, uint64_t step) {
    const auto opened = CheckpointStore::open_verified(path_in(directory, step));
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    const auto optimizer = opened->open_optimizer();
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    std::vector<float> read(2 * kRanks);
    ASSERT_TRUE((*optimizer)->read("exp_avg.w", std::as_writable_bytes(std::span(read))).ok());
    EXPECT_EQ(read, values_of(step));
  }
  void expect_saved(uint64_t step) const { expect_saved_in(directory_, step); }
  void expect_no_leftovers() const {
    for (const auto& entry : fs::directory_iterator(directory_))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }

  test::TemporaryDirectory scratch_;
  const std::string directory_ = scratch_ / "checkpoints";
  std::vector<std::string> directories_{kRanks, directory_};
  std::vector<FileSystem*> files_{kRanks, &default_file_system()};
  std::vector<float> values_ = values_of(1);
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
  directories_[2] = scratch_ / "not-mounted";  // the last one that the chief waits for
  open();
  const auto results = commit(8);
  EXPECT_THAT(results[0].status().message(), HasSubstr("rank 2: "));
  for (const int other : {1, 2})
    EXPECT_THAT(results[index(other)].status().message(), HasSubstr("rank 0: "));
  expect_no_leftovers();
  fs::create_symlink(directory_, directories_[2]);
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
  EXPECT_TRUE(test::eventually([&] { return group_.checks() >= 2 || is_announced; }));
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
  EXPECT_FALSE(fs::exists(path_in(directory_, 8)));
  expect_no_leftovers();
}

// Bytes of the store can be another process's.
TEST_F(ShardedCommitTest, WritesOnlyIntoDirectoryOfUnfinishedCheckpoint) {
  open();
  std::jthread other([this] { (void)rank(1).commit(content(1, 8), stop_.get_token()); });
  send_begun(1, "../.tmp-step-1");
  std::string answer;
  EXPECT_TRUE(test::eventually(
      [&] { return !(answer = *group_.rank(0).receive_text("checkpoint", 1)).empty(); }));
  EXPECT_THAT(answer, HasSubstr("'../.tmp-step-1' is no directory of a checkpoint"));
  stop_.request_stop();
}

TEST_F(ShardedCommitTest, RejectsReportOfAnotherFile) {
  open();
  std::jthread other([this] {
    std::string text;
    EXPECT_TRUE(test::eventually(
        [&] { return !(text = *group_.rank(1).receive_text("checkpoint", 0)).empty(); }));
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

// ---- Faults at each operation of each rank

class ShardedCommitFaultTest : public ShardedCommitTest {
 protected:
  using Fault = test::Fault;
  // When its error ends an attempt, all others have written. After an error of another rank some can still write
  // into the directory that the chief removes, so that it stays until the next checkpoint.
  static constexpr int kLastRank = kRanks - 1;

  // Saves one step more, as processes that have started again: with disks that can fail, one of each rank
  // or one of all. Returns the step.
  uint64_t save_after_restart() {
    restart();
    expect_success(commit(step_ += 8));
    return step_;
  }
  void restart() {
    commits_.clear();
    stores_.clear();
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool has_own = !has_one_disk_ || rank == 0;
      if (has_own)
        disks_[index(rank)] =
            std::make_unique<test::FaultyFiles>(has_one_disk_ ? scratch_.path() : nothing_.path());
      files_[index(rank)] = has_own ? disks_[index(rank)].get() : files_.front();
    }
    open({.poll_interval = std::chrono::milliseconds(1), .segment = ++segment_});
  }
  static void expect_success(const std::vector<Result<Manifest>>& results) {
    for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status().to_string();
  }
  // Of a commit after a restart, by disk.
  std::array<std::vector<test::Operation>, kRanks> record_operations() {
    save_after_restart();
    std::array<std::vector<test::Operation>, kRanks> operations;
    for (size_t i = 0; i < operations.size(); ++i)
      if (disks_[i]) operations[i] = disks_[i]->operations();
    return operations;
  }
  // Calls `commit_with` with each fault of one of the recorded operations, after a restart.
  void with_each_fault(const std::vector<Fault>& faults,
                       const std::function<void(int rank)>& commit_with) {
    const auto operations = record_operations();
    for (int rank = 0; rank < kRanks; ++rank)
      for (uint64_t at = 0; at < operations[index(rank)].size(); ++at)
        for (const Fault& fault : faults) {
          const test::Operation& operation = operations[index(rank)][at];
          const bool is_write = operation.kind == test::Operation::Kind::kWrite;
          if (fault.extent == Fault::Extent::kHalf && !is_write) continue;
          SCOPED_TRACE("rank " + std::to_string(rank) + ": " + to_string(operation) + ", extent " +
                       std::to_string(static_cast<int>(fault.extent)));
          restart();
          disks_[index(rank)]->fail_at(at + 1, fault);
          commit_with(rank);
          fs::remove_all(path_in(directory_, step_ - 16));
          if (HasFatalFailure()) return;
        }
  }

  test::FaultyFiles& disk() { return *disks_.front(); }

  bool has_one_disk_ = false;  // of all ranks, which a power cut concerns
  uint64_t step_ = 0;          // of the last commit

 private:
  const test::TemporaryDirectory nothing_;
  std::array<std::unique_ptr<test::FaultyFiles>, kRanks> disks_;
  uint64_t segment_ = 0;
};

TEST_F(ShardedCommitFaultTest, CommitsAtNextAttemptAfterErrorOfAnyOperationOfAnyRank) {
  save_after_restart();
  with_each_fault({{.extent = Fault::Extent::kNothing},
                   {.extent = Fault::Extent::kHalf},
                   {.extent = Fault::Extent::kAll}},
                  [this](int rank) {
                    const uint64_t before = step_;
                    step_ += 8;
                    int errors = 0;
                    between_attempts = [&](const Status& error) {
                      ++errors;
                      const std::string name = "rank " + std::to_string(rank) + ": ";
                      if (rank > 0) {
                        EXPECT_THAT(error.message(), HasSubstr(name));
                      }
                      EXPECT_FALSE(fs::exists(path_in(directory_, step_)));
                      expect_saved(before);
                      if (rank == kLastRank) expect_no_leftovers();
                    };
                    expect_success(commit(step_, 2));
                    EXPECT_EQ(errors, 1);
                    expect_saved(before);
                    expect_saved(step_);
                    if (rank == kLastRank) expect_no_leftovers();
                  });
  between_attempts = nullptr;
  save_after_restart();
  expect_no_leftovers();
}

// Also while the chief removes what it has written.
TEST_F(ShardedCommitFaultTest, KeepsCheckpointBeforeWhenDiskOfAnyRankFailsPermanently) {
  save_after_restart();
  std::set<std::pair<bool, bool>> seen;  // of the chief, and visible
  with_each_fault({{.extent = Fault::Extent::kHalf, .from_here_on = true},
                   {.extent = Fault::Extent::kAll, .from_here_on = true}},
                  [&](int rank) {
                    const uint64_t before = step_;
                    for (const auto& result : commit(step_ += 8)) EXPECT_FALSE(result.ok());
                    const bool is_visible = fs::exists(path_in(directory_, step_));
                    seen.insert({rank == 0, is_visible});
                    if (is_visible) expect_saved(step_);
                    expect_saved(before);
                    expect_saved(save_after_restart());
                    expect_no_leftovers();
                  });
  EXPECT_EQ(seen, (std::set<std::pair<bool, bool>>{{false, false}, {true, false}, {true, true}}))
      << "only the chief makes a checkpoint visible";
}

const std::vector<std::pair<test::Survival, uint64_t>> kPowerCuts{{test::Survival::kNothing, 0},
                                                                  {test::Survival::kNamesOnly, 0},
                                                                  {test::Survival::kEverything, 0},
                                                                  {test::Survival::kSome, 1},
                                                                  {test::Survival::kSome, 2}};

TEST_F(ShardedCommitFaultTest, CommitsFilesOfAllRanksOrNoneIfPowerIsCutAfterAnyOperation) {
  has_one_disk_ = true;
  const uint64_t before = save_after_restart();
  const uint64_t begin = disk().operations().size();
  expect_success(commit(step_ += 8));
  const auto operations = disk().operations();
  std::set<bool> seen;
  for (uint64_t at = begin; at <= operations.size(); ++at)
    for (const auto& [survival, seed] : kPowerCuts) {
      SCOPED_TRACE("after " + to_string(operations[at - 1]) + ", survival " +
                   std::to_string(static_cast<int>(survival)) + " seed " + std::to_string(seed));
      const test::TemporaryDirectory other;
      disk().simulate_power_loss(at, survival, seed, other / "root");
      const std::string directory = other / "root/checkpoints";
      expect_saved_in(directory, before);
      const bool is_visible = fs::exists(path_in(directory, step_));
      if (is_visible) expect_saved_in(directory, step_);
      if (at < operations.size()) seen.insert(is_visible);
      if (at == operations.size()) {
        EXPECT_TRUE(is_visible) << "the chief has reported it as saved";
      }
    }
  EXPECT_EQ(seen.size(), 2u);
}

// After an error of fsync, the kernel can have dropped what was written.
TEST_F(ShardedCommitFaultTest, KeepsCheckpointOfSecondAttemptWhenPowerIsCut) {
  has_one_disk_ = true;
  save_after_restart();
  with_each_fault({{.extent = Fault::Extent::kAll}}, [this](int) {
    const uint64_t before = step_;
    expect_success(commit(step_ += 8, 2));
    for (const auto& [survival, seed] : kPowerCuts) {
      const test::TemporaryDirectory other;
      disk().simulate_power_loss(disk().operations().size(), survival, seed, other / "root");
      expect_saved_in(other / "root/checkpoints", before);
      expect_saved_in(other / "root/checkpoints", step_);
    }
  });
}

}  // namespace
}  // namespace stoker::train
