#include "daemon/group/rendezvous.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/daemon/group/memory_store.h"

namespace stoker::group {
namespace {

using ::testing::HasSubstr;

// Beyond every wait of a test that succeeds.
std::chrono::steady_clock::time_point late() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(2);
}
std::chrono::steady_clock::time_point past() { return std::chrono::steady_clock::now(); }

LaunchEnvironment rank_of(int rank, int world_size) {
  return {.launcher = Launcher::kTorchrun, .rank = rank, .world_size = world_size};
}

StartRecord record_of(int rank) {
  return {.host = "node-" + std::to_string(rank), .pid = 100 + rank};
}

Status join(Store& store, const LaunchEnvironment& environment,
            std::chrono::steady_clock::time_point deadline, const std::stop_token& stop = {}) {
  return join_group(store, environment, "runs/a", record_of(environment.rank), deadline, stop);
}

TEST(RendezvousTest, ReturnsOnAllRanksWhenLastHasJoined) {
  constexpr int kRanks = 5;
  MemoryStore store;
  std::vector<Status> joined(kRanks, Status(StatusCode::kInternal, "not run"));
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        joined[static_cast<size_t>(rank)] = join(store, rank_of(rank, kRanks), late());
      });
    }
  }
  for (const Status& each : joined) EXPECT_TRUE(each.ok()) << each.to_string();
  EXPECT_EQ(describe_rank(store, rank_of(0, kRanks), 3), "rank 3 (node-3, pid 103)");
}

TEST(RendezvousTest, NamesMissingRanksAtDeadline) {
  MemoryStore store;
  LaunchEnvironment environment = rank_of(1, 4);
  environment.rank_hosts = {"a", "a", "b", "b"};
  const Status joined = join(store, environment, past());
  EXPECT_EQ(joined.code(), StatusCode::kPeerLost);
  EXPECT_EQ(joined.message(),
            "1 of 4 ranks joined the group in time; missing: rank 0 (a), rank 2 (b), rank 3 (b); "
            "see their logs, or those of torchrun");
  EXPECT_EQ(exit_code_for(joined), ExitCode::kCollectiveTimedOut);
}

TEST(RendezvousTest, NamesFewOfManyMissingRanks) {
  MemoryStore store;
  const Status joined = join(store, rank_of(0, 1000), past());
  EXPECT_THAT(joined.message(), HasSubstr("1 of 1000 ranks"));
  EXPECT_THAT(joined.message(), HasSubstr("rank 7, rank 8 and 991 more"));
}

TEST(RendezvousTest, RejectsSecondProcessOfSameRank) {
  MemoryStore store;
  EXPECT_EQ(join(store, rank_of(1, 3), past()).code(), StatusCode::kPeerLost);
  // Even if host and pid are equal, as in containers.
  const Status second = join(store, rank_of(1, 3), late());
  EXPECT_EQ(second.code(), StatusCode::kBusy);
  EXPECT_THAT(second.message(), HasSubstr("two processes are rank 1: this one (node-1, pid 101) "
                                          "and node-1, pid 101"));
}

TEST(RendezvousTest, RejectsRankOfAnotherRunOrWorldSize) {
  MemoryStore store;
  EXPECT_EQ(join(store, rank_of(0, 2), past()).code(), StatusCode::kPeerLost);
  const Status other_run =
      join_group(store, rank_of(1, 2), "runs/b", record_of(1), late(), std::stop_token());
  EXPECT_EQ(other_run.code(), StatusCode::kMismatch);
  EXPECT_THAT(other_run.message(), HasSubstr("rank 1 is of run 'runs/b' with 2 ranks, but its "
                                             "store is used by run 'runs/a' with 2 ranks"));
  EXPECT_EQ(join(store, rank_of(1, 3), late()).code(), StatusCode::kMismatch);
  EXPECT_TRUE(join(store, rank_of(1, 2), late()).ok());
}

TEST(RendezvousTest, StopsWaitingOnRequest) {
  MemoryStore store;
  std::stop_source stop;
  std::jthread stopper([&stop] { stop.request_stop(); });
  EXPECT_EQ(join(store, rank_of(0, 2), late(), stop.get_token()).code(), StatusCode::kCancelled);
}

TEST(RendezvousTest, FailsWhenStoreIsLost) {
  MemoryStore store;
  std::jthread server([&store] { store.lose(); });
  EXPECT_EQ(join(store, rank_of(0, 2), late()).code(), StatusCode::kPeerLost);
}

TEST(RendezvousTest, DescribesRankThatNeverJoined) {
  MemoryStore store;
  EXPECT_EQ(describe_rank(store, rank_of(0, 2), 1), "rank 1");
  ASSERT_TRUE(store.set("rank/1", "not json").ok());
  EXPECT_EQ(describe_rank(store, rank_of(0, 2), 1), "rank 1");
}

}  // namespace
}  // namespace stoker::group
