#include "daemon/group/rendezvous.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/failure_record.h"
#include "daemon/group/socket_address.h"
#include "tests/daemon/group/counted_store.h"
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

Result<std::string> join(Store& store, const LaunchEnvironment& environment,
                         std::chrono::steady_clock::time_point deadline,
                         const std::stop_token& stop = {}, const Status& ready = {}) {
  return join_group(store, environment, "runs/a", record_of(environment.rank), ready, {}, deadline,
                    stop);
}
std::string error_of(const Result<std::string>& joined) { return joined.status().message(); }

// A rank of a group whose launcher serves the store, so that earlier groups have used it.
LaunchEnvironment restarted_rank_of(int rank, int world_size) {
  LaunchEnvironment environment = rank_of(rank, world_size);
  environment.launcher_serves_store = true;
  return environment;
}

// Runs all ranks, rank 0 last; returns what they return.
std::vector<Result<std::string>> join_all(Store& store, int world_size, const Status& ready_of_last,
                                          LaunchEnvironment (*environment_of)(int, int)) {
  std::vector<Result<std::string>> joined(static_cast<size_t>(world_size),
                                          Status(StatusCode::kInternal, "not run"));
  std::vector<std::jthread> ranks;
  for (int rank = world_size - 1; rank >= 0; --rank) {
    ranks.emplace_back([&, rank] {
      const bool is_last = rank == world_size - 1;
      joined[static_cast<size_t>(rank)] = join(store, environment_of(rank, world_size), late(), {},
                                               is_last ? ready_of_last : Status());
    });
  }
  ranks.clear();
  return joined;
}

TEST(RendezvousTest, ReturnsOnAllRanksWhenLastHasJoined) {
  MemoryStore store;
  for (const auto& each : join_all(store, 5, {}, rank_of)) {
    ASSERT_TRUE(each.ok()) << error_of(each);
    EXPECT_EQ(*each, "1/");
  }
  PrefixedStore keys(store, "1/");
  EXPECT_EQ(describe_rank(keys, rank_of(0, 5), 3), "rank 3 (node-3, pid 103)");
}

// As under torchrun when a rank was killed, a node joined, or one left: nothing in the environment
// tells that the group is a new one.
TEST(RendezvousTest, LeavesKeysOfEarlierGroupsOfSameStore) {
  MemoryStore store;
  int generation = 0;
  for (const int world_size : {2, 2, 3, 2}) {
    const std::string prefix = std::to_string(++generation) + "/";
    for (const auto& each : join_all(store, world_size, {}, restarted_rank_of)) {
      ASSERT_TRUE(each.ok()) << error_of(each);
      EXPECT_EQ(*each, prefix);
    }
  }
}

TEST(RendezvousTest, LeavesGroupThatWasNeverComplete) {
  MemoryStore store;
  const auto alone = join(store, restarted_rank_of(0, 3), past());
  EXPECT_EQ(alone.status().code(), StatusCode::kPeerLost);
  const Status broken(StatusCode::kInvalidArgument, "no such interface");
  EXPECT_FALSE(join_all(store, 2, broken, restarted_rank_of).front().ok());
  for (const auto& each : join_all(store, 3, {}, restarted_rank_of)) {
    ASSERT_TRUE(each.ok()) << error_of(each);
    EXPECT_EQ(*each, "3/");
  }
}

TEST(RendezvousTest, NamesRankThatCannotTakePart) {
  MemoryStore store;
  const Status broken(StatusCode::kInvalidArgument, "no such interface");
  const auto joined = join_all(store, 3, broken, rank_of);
  EXPECT_EQ(joined[2].status().code(), StatusCode::kInvalidArgument);
  for (const size_t other : {0, 1}) {
    EXPECT_EQ(joined[other].status().code(), StatusCode::kPeerLost);
    EXPECT_THAT(error_of(joined[other]), HasSubstr("rank 2 (node-2, pid 102) failed: "));
    EXPECT_THAT(error_of(joined[other]), HasSubstr("no such interface"));
    EXPECT_EQ(joined[other].status().cause(), StatusCode::kInvalidArgument);
  }
}

// With another WORLD_SIZE. The rank that waits for it learns that from the store.
TEST(RendezvousTest, EndsRankThatWaitsForOneOfAnotherNumberOfRanks) {
  MemoryStore store;
  Result<std::string> chief = Status(StatusCode::kInternal, "not run");
  std::jthread waiting([&] { chief = join(store, rank_of(0, 2), late()); });
  const auto other = join(store, rank_of(1, 4), late());
  waiting.join();
  EXPECT_EQ(other.status().code(), StatusCode::kMismatch);
  EXPECT_EQ(chief.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(chief.status().cause(), StatusCode::kMismatch);
  EXPECT_THAT(error_of(chief), HasSubstr("rank 1 is of run 'runs/a' with 4 ranks"));
}

TEST(RendezvousTest, IsNotEndedByRankOfAnotherRun) {
  MemoryStore store;
  Result<std::string> chief = Status(StatusCode::kInternal, "not run");
  std::jthread waiting([&] { chief = join(store, rank_of(0, 2), late()); });
  const auto other = join_group(store, rank_of(1, 2), "runs/b", record_of(1), {}, {}, late(), {});
  EXPECT_EQ(other.status().code(), StatusCode::kMismatch);
  EXPECT_TRUE(join(store, rank_of(1, 2), late()).ok());
  waiting.join();
  EXPECT_TRUE(chief.ok()) << error_of(chief);
}

// Ranks can fail at about the same time.
TEST(RendezvousTest, ReportsFirstOfSeveralFailures) {
  MemoryStore store;
  PrefixedStore keys(store, "1/");
  const Status first =
      report_start_failure(keys, rank_of(1, 2), Status(StatusCode::kPeerLost, "no route"), {});
  EXPECT_EQ(first.message(), "no route");
  const Status second =
      report_start_failure(keys, rank_of(0, 2), Status(StatusCode::kPeerLost, "closed"), {});
  EXPECT_THAT(second.message(), testing::MatchesRegex("rank 1 failed: .*no route; closed"));
}

// Rank 1 of four, which have joined: "closed" ends its attempt to connect to them.
class ConnectFailureTest : public testing::Test {
 protected:
  ConnectFailureTest() {
    for (int rank = 0; rank < 4; ++rank)
      (void)store_.set(
          "rank/" + std::to_string(rank),
          R"({"host":")" + host_name() + R"(","pid":)" + std::to_string(100 + rank) + "}");
  }
  std::string report(const HasExited& has_exited = {},
                     std::chrono::milliseconds grace = std::chrono::milliseconds(0)) {
    const Status reported = report_connect_failure(
        store_, rank_of(1, 4), Status(StatusCode::kPeerLost, "closed"), has_exited, grace);
    EXPECT_EQ(reported.code(), StatusCode::kPeerLost);
    return reported.message();
  }
  static std::string name_of(int rank) {
    return "rank " + std::to_string(rank) + " (" + host_name() + ", pid " +
           std::to_string(100 + rank) + ")";
  }
  void lose_connection(int rank) {
    EXPECT_TRUE(
        write_failure_record(store_, {.rank = rank, .lost_rank = kUnknownRank, .reason = "reset"})
            .ok());
  }
  std::string what_others_are_told() { return check_failed(store_, rank_of(0, 4)).message(); }

  MemoryStore store_;
};

// Connections of a killed process are closed before or after its lock is released, and that of its store.
TEST_F(ConnectFailureTest, NamesChiefWhoseStoreDoesNotRespond) {
  store_.lose();
  EXPECT_EQ(report(),
            "rank 0 exited, hangs or cannot be reached: the store does not respond; closed");
}

TEST_F(ConnectFailureTest, NamesChiefWhoseStoreIsLostWhileItWaitsForRecords) {
  const std::jthread chief([this] {
    (void)wait_for_failure_record(store_, 1, std::chrono::minutes(2));
    store_.lose();
  });
  EXPECT_THAT(report({}, std::chrono::minutes(2)), HasSubstr("rank 0 exited, hangs or"));
}

TEST_F(ConnectFailureTest, NamesKilledRankWithoutWaitingForOthers) {
  const auto has_exited = [](int rank) { return rank == 2; };
  EXPECT_EQ(report(has_exited, std::chrono::hours(1)),
            name_of(2) + " exited, hangs or cannot be reached; closed");
  EXPECT_THAT(what_others_are_told(), HasSubstr(name_of(2) + " exited without a reason"));
}

TEST_F(ConnectFailureTest, NamesRankThatFailedFirst) {
  lose_connection(0);
  announce_failure(store_, rank_of(3, 4), Status(StatusCode::kIoError, "no memory"));
  EXPECT_THAT(report({}, std::chrono::hours(1)),
              testing::MatchesRegex("rank 3 .* failed: .*no memory; closed"));
  EXPECT_THAT(what_others_are_told(), HasSubstr(name_of(3) + " failed: "));
}

// It runs on another host, so that nothing tells that it has exited.
TEST_F(ConnectFailureTest, NamesRankThatNeitherConnectsNorReportsError) {
  EXPECT_TRUE(announce_connected(store_, 0).ok());
  lose_connection(3);
  EXPECT_EQ(report(),
            name_of(2) +
                " has neither connected nor reported an error; see its log; closed; check the "
                "network interface, and firewalls between the nodes");
  EXPECT_THAT(what_others_are_told(), HasSubstr(name_of(1) + " left the group: closed"));
}

TEST_F(ConnectFailureTest, NamesAllThatAreSilent) {
  lose_connection(0);
  EXPECT_THAT(report(), testing::StartsWith(name_of(2) + ", " + name_of(3) +
                                            " have neither connected nor reported an error; see "
                                            "their logs; closed; "));
}

// It may have no connection because of an error on its host, as too many open files.
TEST_F(ConnectFailureTest, NamesFirstRankThatReportedError) {
  for (const int rank : {3, 0, 2}) {
    lose_connection(rank);
    announce_loss(store_, rank);
  }
  EXPECT_EQ(report({}, std::chrono::hours(1)),
            name_of(3) +
                " left the group: reset; closed; check the network interface, and firewalls "
                "between the nodes");
}

// Rank 0 had connected, and ends because rank 3 left.
TEST_F(ConnectFailureTest, DoesNotNameRankThatRepeatsFailureOfAnother) {
  EXPECT_TRUE(announce_connected(store_, 0).ok());
  lose_connection(2);
  lose_connection(3);
  announce_loss(store_, 3);
  announce_failure(store_, rank_of(0, 4), check_failed(store_, rank_of(0, 4)));
  EXPECT_THAT(report(), testing::StartsWith(name_of(3) + " left the group: reset; closed"));
}

// It writes its record after this rank has looked for it, and exits.
TEST_F(ConnectFailureTest, DoesNotNameRankThatReportsErrorAndExitsAsKilled) {
  EXPECT_TRUE(announce_connected(store_, 0).ok());
  EXPECT_TRUE(announce_connected(store_, 3).ok());
  const auto has_exited = [this](int rank) {
    if (rank == 2) lose_connection(2);
    return rank == 2;
  };
  EXPECT_THAT(report(has_exited), testing::StartsWith("closed; check the network"));
}

// Its store may still tell that rank why, and that rank may only be slow.
TEST_F(ConnectFailureTest, ChiefWaitsForSilentRank) {
  std::atomic<bool> has_left = false;
  const std::jthread silent([&] {
    EXPECT_TRUE(store_.wait("left/0", late(), {}).ok());
    has_left = true;
    EXPECT_TRUE(store_.set("left/1", "1").ok());
  });
  const Status reported = report_connect_failure(store_, rank_of(0, 2),
                                                 Status(StatusCode::kPeerLost, "closed"), {}, {});
  EXPECT_TRUE(has_left);
  EXPECT_THAT(reported.message(), testing::StartsWith(name_of(1) + " has neither connected"));
}

// Remembers the keys that are waited for.
class WaitedStore final : public CountedStore {
 public:
  using CountedStore::CountedStore;
  Status wait(const std::string& key, Deadline deadline, const std::stop_token& stop) override {
    waited.push_back(key);
    return CountedStore::wait(key, deadline, stop);
  }
  std::vector<std::string> waited;
};

// It will not tell that it has left.
TEST_F(ConnectFailureTest, ChiefDoesNotWaitForRankThatHasExited) {
  const auto has_exited = [](int rank) { return rank == 3; };
  const Status closed(StatusCode::kPeerLost, "closed");
  for (const int rank : {1, 2}) EXPECT_TRUE(store_.set("left/" + std::to_string(rank), "1").ok());
  WaitedStore at_start(store_);
  (void)report_start_failure(at_start, rank_of(0, 4), closed, has_exited);
  EXPECT_THAT(at_start.waited, testing::ElementsAre("left/1", "left/2"));
  WaitedStore later(store_);
  leave_store(later, rank_of(0, 4), kUnknownRank, has_exited);
  EXPECT_THAT(later.waited, testing::ElementsAre("left/1", "left/2"));
}

TEST(RendezvousTest, ChiefOfFailedGroupDoesNotWaitForRankThatHasExited) {
  MemoryStore store;
  for (const int rank : {1, 2, 3})
    EXPECT_TRUE(
        store.set("1/rank/" + std::to_string(rank), R"({"host":")" + host_name() + R"(","pid":1})")
            .ok());
  EXPECT_TRUE(store.set("1/left/1", "1").ok());
  PrefixedStore keys(store, "1/");
  announce_loss(keys, 2);
  WaitedStore waited(store);
  const auto joined = join_group(waited, rank_of(0, 4), "runs/a", record_of(0), {},
                                 [](int rank) { return rank == 3; }, past(), {});
  EXPECT_EQ(joined.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(waited.waited, testing::ElementsAre("1/all_joined", "1/left/1"));
}

// All ranks do this at about the same time.
TEST_F(ConnectFailureTest, AsksStoreTwiceForEachRank) {
  constexpr int kRanks = 100;
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(announce_connected(store_, rank).ok());
  CountedStore counted(store_);
  (void)report_connect_failure(counted, rank_of(1, kRanks), Status(StatusCode::kPeerLost, "closed"),
                               [](int) { return false; }, {});
  EXPECT_LE(counted.requests(), 2 * kRanks + 10);
}

TEST_F(ConnectFailureTest, BlamesNetworkIfAllOthersRespond) {
  EXPECT_TRUE(announce_connected(store_, 0).ok());
  lose_connection(2);
  lose_connection(3);
  EXPECT_EQ(report({}, std::chrono::hours(1)),
            "closed; check the network interface, and firewalls between the nodes");
}

TEST(RendezvousTest, NamesMissingRanksAtDeadline) {
  MemoryStore store;
  LaunchEnvironment environment = rank_of(0, 4);
  environment.rank_hosts = {"a", "a", "b", "b"};
  const auto joined = join(store, environment, past());
  EXPECT_EQ(error_of(joined),
            "1 of 4 ranks joined the group in time; missing: rank 1 (a), rank 2 (b), rank 3 (b); "
            "see their logs, or those of torchrun");
  EXPECT_EQ(exit_code_for(joined.status()), ExitCode::kCollectiveTimedOut);
}

TEST(RendezvousTest, NamesChiefThatNeverJoins) {
  MemoryStore store;
  const auto joined = join(store, rank_of(1, 2), past());
  EXPECT_EQ(joined.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(error_of(joined),
            "rank 0 did not join the group in time; see its log, or those of "
            "torchrun");
}

TEST(RendezvousTest, NamesFewOfManyMissingRanks) {
  MemoryStore store;
  const auto joined = join(store, rank_of(0, 1000), past());
  EXPECT_THAT(error_of(joined), HasSubstr("1 of 1000 ranks"));
  EXPECT_THAT(error_of(joined), HasSubstr("rank 7, rank 8 and 991 more"));
}

TEST(RendezvousTest, RejectsSecondProcessOfSameRank) {
  MemoryStore store;
  for (const int rank : {0, 1})
    EXPECT_EQ(join(store, rank_of(rank, 3), past()).status().code(), StatusCode::kPeerLost);
  // Even if host and pid are equal, as in containers.
  const auto second = join(store, rank_of(1, 3), late());
  EXPECT_EQ(second.status().code(), StatusCode::kBusy);
  EXPECT_THAT(error_of(second), HasSubstr("two processes are rank 1: this one (node-1, pid 101) "
                                          "and node-1, pid 101"));
}

TEST(RendezvousTest, RejectsRankOfAnotherRunOrWorldSize) {
  MemoryStore store;
  EXPECT_EQ(join(store, rank_of(0, 2), past()).status().code(), StatusCode::kPeerLost);
  const auto other_run =
      join_group(store, rank_of(1, 2), "runs/b", record_of(1), {}, {}, late(), std::stop_token());
  EXPECT_EQ(other_run.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(error_of(other_run), HasSubstr("rank 1 is of run 'runs/b' with 2 ranks, but its "
                                             "store is used by run 'runs/a' with 2 ranks"));
  EXPECT_EQ(join(store, rank_of(1, 3), late()).status().code(), StatusCode::kMismatch);
}

TEST(RendezvousTest, StopsWaitingOnRequest) {
  MemoryStore store;
  std::stop_source stop;
  std::jthread stopper([&stop] { stop.request_stop(); });
  for (const int rank : {0, 1})
    EXPECT_EQ(join(store, rank_of(rank, 2), late(), stop.get_token()).status().code(),
              StatusCode::kCancelled);
}

// Rank 2 never joins.
TEST(RendezvousTest, TellsOtherRanksThatOneWasStopped) {
  MemoryStore store;
  std::stop_source stop;
  std::jthread stopped([&] {
    const auto joined = join(store, restarted_rank_of(1, 3), late(), stop.get_token());
    EXPECT_EQ(joined.status().code(), StatusCode::kCancelled);
  });
  std::jthread stopper([&] {
    EXPECT_TRUE(store.wait("1/rank/1", late(), {}).ok());
    stop.request_stop();
  });
  const auto joined = join(store, restarted_rank_of(0, 3), late());
  EXPECT_EQ(joined.status().code(), StatusCode::kPeerLost);
  EXPECT_THAT(error_of(joined), HasSubstr("rank 1 (node-1, pid 101) failed: cancelled: "));
}

TEST(RendezvousTest, FailsWhenStoreIsLost) {
  MemoryStore store;
  std::jthread server([&store] { store.lose(); });
  EXPECT_EQ(join(store, rank_of(0, 2), late()).status().code(), StatusCode::kPeerLost);
}

TEST(RendezvousTest, DescribesRankThatNeverJoined) {
  MemoryStore store;
  EXPECT_EQ(describe_rank(store, rank_of(0, 2), 1), "rank 1");
  ASSERT_TRUE(store.set("rank/1", "not json").ok());
  EXPECT_EQ(describe_rank(store, rank_of(0, 2), 1), "rank 1");
}

// Rank 1 has joined, and rank 2 has not.
TEST(RendezvousTest, NamesRankThatWasKilledAfterItJoined) {
  MemoryStore store;
  std::stop_source stop_of_killed;
  const StartRecord killed{.host = host_name(), .pid = 41};
  std::jthread other([&] {
    (void)join_group(store, rank_of(1, 3), "runs/a", killed, {}, {}, late(),
                     stop_of_killed.get_token());
  });
  const auto has_exited = [&store](int rank) { return rank == 1 && *store.get("1/rank/1"); };
  const auto joined =
      join_group(store, rank_of(0, 3), "runs/a", record_of(0), {}, has_exited, late(), {});
  EXPECT_THAT(error_of(joined),
              HasSubstr("rank 1 (" + host_name() + ", pid 41) exited without a reason"));
  stop_of_killed.request_stop();
}

TEST(RendezvousTest, FindsThatAnotherGroupHasStarted) {
  MemoryStore store;
  ASSERT_TRUE(store.set("generation", "3").ok());
  EXPECT_TRUE(check_newest(store, "3/").ok());
  EXPECT_EQ(check_newest(store, "2/").code(), StatusCode::kPeerLost);
  store.lose();
  EXPECT_EQ(check_newest(store, "3/").code(), StatusCode::kPeerLost);
}

}  // namespace
}  // namespace stoker::group
