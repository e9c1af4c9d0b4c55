// A commit that is killed, or gets an I/O error, at each of its operations.
#include <cerrno>
#include <filesystem>
#include <set>

#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::checkpoint {
namespace {

using test::Fault;
using test::FaultyFiles;
using test::TemporaryDirectory;
using Extent = Fault::Extent;

constexpr Extent kExtents[] = {Extent::kNothing, Extent::kHalf, Extent::kAll};

// A directory with checkpoint 1, and a disk that can fail during the commit of checkpoint 2.
struct Attempt {
  Attempt() : files(scratch.path()), store(scratch / "checkpoints", files) {
    CheckpointStore earlier(store.directory(), files);
    EXPECT_TRUE(earlier.commit(TrainerState(1).content()).ok());
    before = files.operations().size();
  }
  Result<Manifest> commit() { return store.commit(TrainerState(2).content()); }
  std::string path(uint64_t step) const {
    return join_path(store.directory(), CheckpointStore::checkpoint_name(step));
  }
  std::string last_operation(uint64_t at) const {
    const auto operations = files.operations();
    return before + at <= operations.size() ? to_string(operations[before + at - 1]) : "none";
  }

  TemporaryDirectory scratch;
  FaultyFiles files;
  CheckpointStore store;
  uint64_t before = 0;  // operations before the second commit
};

uint64_t commit_operations() {
  Attempt attempt;
  EXPECT_TRUE(attempt.commit().ok());
  return attempt.files.operations().size() - attempt.before;
}

// Simulates the next start: visible checkpoints are complete, the rest is removed, and commits work
// again.
void expect_restart_succeeds(const std::string& directory) {
  TemporaryDirectory other;
  FaultyFiles files(other.path());
  CheckpointStore store(directory, files);
  const auto path = [&](uint64_t step) {
    return join_path(directory, CheckpointStore::checkpoint_name(step));
  };
  ASSERT_TRUE(store.clean_up().ok());
  const auto steps = steps_of(store);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 1U);
  for (const uint64_t step : steps) EXPECT_TRUE(is_complete(path(step), step));
  std::set<std::string> expected;
  for (const uint64_t step : steps) expected.insert(CheckpointStore::checkpoint_name(step));
  for (const std::string& name : names_in(directory))
    EXPECT_TRUE(name == "latest" || expected.contains(name)) << name << " is left";
  const auto again = store.commit(TrainerState(2).content());
  EXPECT_EQ(again.status().code(), steps.size() == 2 ? StatusCode::kAlreadyExists : StatusCode::kOk)
      << again.status().to_string();
  EXPECT_TRUE(is_complete(path(2), 2));
  EXPECT_TRUE(is_complete(path(1), 1));
}

TEST(CommitFaultTest, PreservesPreviousCheckpointWhenKilledAtAnyOperation) {
  const uint64_t count = commit_operations();
  ASSERT_GE(count, 15U);  // five files with open, write and sync
  std::set<bool> visible;
  for (uint64_t at = 1; at <= count; ++at) {
    for (const Extent extent : kExtents) {
      Attempt attempt;
      attempt.files.kill_at(attempt.before + at, extent);
      EXPECT_FALSE(attempt.commit().ok());
      SCOPED_TRACE(attempt.last_operation(at) + ", extent " +
                   std::to_string(static_cast<int>(extent)));
      EXPECT_TRUE(is_complete(attempt.path(1), 1));
      visible.insert(steps_of(attempt.store).size() == 2);
      expect_restart_succeeds(attempt.store.directory());
    }
  }
  EXPECT_EQ(visible.size(), 2U) << "kills before and after the rename";
}

TEST(CommitFaultTest, RecoversFromOneErrorAtAnyOperation) {
  const uint64_t count = commit_operations();
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    const StatusCode code = error == EIO ? StatusCode::kIoError : StatusCode::kNoSpace;
    for (uint64_t at = 1; at <= count; ++at) {
      for (const Extent extent : kExtents) {
        Attempt attempt;
        attempt.files.fail_at(attempt.before + at, {error, extent});
        const auto failed = attempt.commit();
        SCOPED_TRACE(attempt.last_operation(at) + ", extent " +
                     std::to_string(static_cast<int>(extent)));
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.status().code(), code) << failed.status().to_string();
        EXPECT_EQ(steps_of(attempt.store), (std::vector<uint64_t>{1}));
        EXPECT_TRUE(is_complete(attempt.path(1), 1));
        // The disk has recovered: retry the same step in the same process.
        EXPECT_TRUE(attempt.commit().ok());
        EXPECT_TRUE(is_complete(attempt.path(2), 2));
      }
    }
  }
}

// The disk stays full, so the cleanup of the failed commit also fails.
TEST(CommitFaultTest, RecoversFromPersistentErrorsAfterAnyOperation) {
  const uint64_t count = commit_operations();
  for (uint64_t at = 1; at <= count; ++at) {
    Attempt attempt;
    attempt.files.fail_at(attempt.before + at, {ENOSPC, Extent::kHalf, true});
    const auto failed = attempt.commit();
    SCOPED_TRACE(attempt.last_operation(at));
    EXPECT_EQ(failed.status().code(), StatusCode::kNoSpace);
    EXPECT_TRUE(is_complete(attempt.path(1), 1));
    attempt.files.heal();
    if (steps_of(attempt.store).size() == 1) {
      EXPECT_TRUE(attempt.commit().ok());
    }
    EXPECT_TRUE(is_complete(attempt.path(2), 2));
  }
}

TEST(CommitFaultTest, DoesNotRetryFailedSyncOnSameFile) {
  Attempt recorded;
  ASSERT_TRUE(recorded.commit().ok());
  const auto operations = recorded.files.operations();
  for (uint64_t at = recorded.before; at < operations.size(); ++at) {
    if (operations[at].kind != test::Operation::Kind::kSync) continue;
    Attempt attempt;
    attempt.files.fail_at(at + 1, {});
    ASSERT_FALSE(attempt.commit().ok());
    const auto done = attempt.files.operations();
    for (size_t i = at + 1; i < done.size(); ++i)
      EXPECT_NE(done[i].kind, test::Operation::Kind::kSync) << to_string(done[i]);
  }
}

TEST(CommitFaultTest, LeavesNoTemporaryFilesAfterFailedCommit) {
  const uint64_t count = commit_operations();
  for (uint64_t at = 1; at <= count; ++at) {
    Attempt attempt;
    attempt.files.fail_at(attempt.before + at, {ENOSPC, Extent::kHalf});
    ASSERT_FALSE(attempt.commit().ok());
    SCOPED_TRACE(attempt.last_operation(at));
    EXPECT_EQ(names_in(attempt.store.directory()),
              (std::vector<std::string>{"latest", "step-000000001"}));
  }
}

}  // namespace
}  // namespace stoker::checkpoint
