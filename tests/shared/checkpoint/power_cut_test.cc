// A power cut at each operation, with four outcomes: all unsynced changes are lost, names survive
// without data, each change survives at random, everything survives.
#include <filesystem>

#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::checkpoint {
namespace {

using test::FaultyFiles;
using test::Survival;
using test::TemporaryDirectory;

struct PowerCut {
  Survival survival;
  uint64_t seed;
};

std::vector<PowerCut> power_cuts(uint64_t coins = 6) {
  std::vector<PowerCut> all = {
      {Survival::kNothing, 0}, {Survival::kNamesOnly, 0}, {Survival::kEverything, 0}};
  for (uint64_t seed = 1; seed <= coins; ++seed) all.push_back({Survival::kSome, seed});
  return all;
}

class PowerCutTest : public ::testing::Test {
 protected:
  // Calls `check` with the checkpoint directory after each kind of power cut following
  // `operations`.
  template <typename Check>
  void after(uint64_t operations, const Check& check) {
    for (const auto& [survival, seed] : power_cuts()) {
      TemporaryDirectory disk;
      files_.simulate_power_loss(operations, survival, seed, disk / "root");
      const auto done = files_.operations();
      SCOPED_TRACE("after " + std::to_string(operations) + " operations, the last: " +
                   (operations == 0 ? "none" : to_string(done[operations - 1])) + ", survival " +
                   std::to_string(static_cast<int>(survival)) + " seed " + std::to_string(seed));
      check(disk / "root/runs/demo/checkpoints");
    }
  }
  static std::string path_in(const std::string& directory, uint64_t step) {
    return join_path(directory, CheckpointStore::checkpoint_name(step));
  }
  static bool exists(const std::string& directory, uint64_t step) {
    return std::filesystem::exists(path_in(directory, step));
  }
  // Visible checkpoints are complete, clean_up() removes everything else, and commits work again.
  static void expect_valid(const std::string& directory, uint64_t next_step) {
    TemporaryDirectory other;
    FaultyFiles files(other.path());
    CheckpointStore store(directory, files);
    for (const uint64_t step : steps_of(store))
      EXPECT_TRUE(is_complete(path_in(directory, step), step));
    EXPECT_TRUE(store.clean_up().ok());
    for (const std::string& name : names_in(directory))
      EXPECT_TRUE(CheckpointStore::parse_checkpoint_name(name)) << name << " is left";
    if (!exists(directory, next_step)) {
      const auto written = store.commit(TrainerState(next_step).content());
      EXPECT_TRUE(written.ok()) << written.status().to_string();
    }
    EXPECT_TRUE(is_complete(path_in(directory, next_step), next_step));
  }
  uint64_t count() const { return files_.operations().size(); }

  TemporaryDirectory root_;
  FaultyFiles files_{root_.path()};
  const std::string directory_ = root_ / "runs/demo/checkpoints";  // created by the first commit
  CheckpointStore store_{directory_, files_};
};

TEST_F(PowerCutTest, PreservesDurableFirstCheckpoint) {
  ASSERT_TRUE(store_.commit(TrainerState(1).content()).ok());
  after(count(),
        [](const std::string& directory) { EXPECT_TRUE(is_complete(path_in(directory, 1), 1)); });
}

// As in the daemon: the directories are created before the store.
TEST_F(PowerCutTest, PreservesCheckpointInUnsyncedParentDirectories) {
  ASSERT_TRUE(make_directories(files_, directory_).ok());
  ASSERT_TRUE(store_.commit(TrainerState(1).content()).ok());
  after(count(),
        [](const std::string& directory) { EXPECT_TRUE(is_complete(path_in(directory, 1), 1)); });
}

TEST_F(PowerCutTest, PreservesDurableCheckpointAtAnyOperationOfCommit) {
  ASSERT_TRUE(store_.commit(TrainerState(1).content()).ok());
  const uint64_t first = count();
  ASSERT_TRUE(store_.commit(TrainerState(2).content()).ok());
  const uint64_t last = count();
  int seen = 0;
  for (uint64_t at = first; at <= last; ++at) {
    after(at, [&](const std::string& directory) {
      EXPECT_TRUE(is_complete(path_in(directory, 1), 1));
      if (at == last) {
        EXPECT_TRUE(is_complete(path_in(directory, 2), 2));
      } else if (exists(directory, 2)) {
        ++seen;
      }
      expect_valid(directory, 2);
    });
  }
  EXPECT_GT(seen, 0) << "visible before it was acknowledged, which is fine, must have been tried";
}

// The failed operation affects later operations of the program; then the power is cut.
TEST_F(PowerCutTest, PreservesDurableCheckpointWhenFailedCommitIsRetried) {
  ASSERT_TRUE(store_.commit(TrainerState(1).content()).ok());
  const uint64_t first = count();
  ASSERT_TRUE(store_.commit(TrainerState(2).content()).ok());
  const uint64_t operations = count() - first;
  // The last operations: the rename, and the directory sync that makes it durable.
  for (uint64_t failing = operations - 2; failing <= operations; ++failing) {
    TemporaryDirectory root;
    FaultyFiles files(root.path());
    CheckpointStore store(root / "checkpoints", files);
    ASSERT_TRUE(store.commit(TrainerState(1).content()).ok());
    const uint64_t start = files.operations().size();
    files.fail_at(start + failing, {EIO, test::Fault::Extent::kAll});
    ASSERT_FALSE(store.commit(TrainerState(2).content()).ok());
    ASSERT_TRUE(store.commit(TrainerState(2).content()).ok());
    const uint64_t end = files.operations().size();
    for (uint64_t at = start + failing; at <= end; ++at) {
      for (const auto& [survival, seed] : power_cuts(2)) {
        TemporaryDirectory disk;
        files.simulate_power_loss(at, survival, seed, disk / "root");
        SCOPED_TRACE("failing " + std::to_string(failing) + ", after " +
                     to_string(files.operations()[at - 1]) + ", survival " +
                     std::to_string(static_cast<int>(survival)) + " seed " + std::to_string(seed));
        const std::string directory = disk / "root/checkpoints";
        EXPECT_TRUE(is_complete(path_in(directory, 1), 1));
        if (at == end) {
          EXPECT_TRUE(is_complete(path_in(directory, 2), 2));
        }
        expect_valid(directory, 2);
      }
    }
  }
}

TEST_F(PowerCutTest, PreservesRemainingCheckpointsAtAnyOperationOfDeletion) {
  for (uint64_t step = 1; step <= 4; ++step)
    ASSERT_TRUE(store_.commit(TrainerState(step).content()).ok());
  const uint64_t first = count();
  const auto deleted = store_.delete_checkpoints(std::vector<uint64_t>{1, 2});
  ASSERT_TRUE(deleted.ok()) << deleted.status().to_string();
  ASSERT_EQ(deleted->deleted_steps, (std::vector<uint64_t>{1, 2}));
  for (uint64_t at = first; at <= count(); ++at) {
    after(at, [&](const std::string& directory) {
      EXPECT_TRUE(is_complete(path_in(directory, 3), 3));
      EXPECT_TRUE(is_complete(path_in(directory, 4), 4));
      expect_valid(directory, 5);
    });
  }
}

TEST_F(PowerCutTest, PreservesCheckpointsAtAnyOperationOfCleanup) {
  ASSERT_TRUE(store_.commit(TrainerState(1).content()).ok());
  // A deletion and a commit that were killed: their renames were never synced.
  ASSERT_TRUE(store_.commit(TrainerState(2).content()).ok());
  ASSERT_TRUE(
      files_.rename(path_in(directory_, 1), join_path(directory_, ".trash-step-000000001")).ok());
  ASSERT_TRUE(files_.make_directory(join_path(directory_, ".tmp-step-000000003")).ok());
  std::filesystem::remove(join_path(directory_, "latest"));
  const uint64_t first = count();
  ASSERT_TRUE(store_.clean_up().ok());
  EXPECT_EQ(names_in(directory_), (std::vector<std::string>{"step-000000002"}));
  for (uint64_t at = first; at <= count(); ++at) {
    after(at, [&](const std::string& directory) {
      EXPECT_TRUE(is_complete(path_in(directory, 2), 2));
      expect_valid(directory, 3);
    });
  }
}

}  // namespace
}  // namespace stoker::checkpoint
