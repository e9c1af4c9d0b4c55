#include "daemon/group/start_checks.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/rendezvous.h"
#include "daemon/group/socket_address.h"
#include "tests/daemon/group/memory_store.h"

namespace stoker::group {
namespace {

using ::testing::HasSubstr;

StartWait far_deadline() {
  return {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2)};
}

LaunchEnvironment member_of(int rank, int world_size) {
  return {.launcher = Launcher::kTorchrun, .rank = rank, .world_size = world_size};
}

// Runs all ranks, each with its settings; returns what they return.
std::vector<Status> check_all(Store& store, const std::vector<SharedSettings>& settings) {
  std::vector<Status> results(settings.size());
  {
    std::vector<std::jthread> ranks;
    for (size_t rank = 0; rank < settings.size(); ++rank)
      ranks.emplace_back([&, rank] {
        results[rank] = check_same_settings(
            store, member_of(static_cast<int>(rank), static_cast<int>(settings.size())), "1",
            settings[rank], far_deadline(), {});
      });
  }
  return results;
}

TEST(StartChecksTest, AcceptsSameSettings) {
  MemoryStore store;
  const SharedSettings settings{{"lr", "0.1"}, {"path", "a b\n\"c\""}};
  for (const Status& result : check_all(store, {settings, settings, settings}))
    EXPECT_TRUE(result.ok()) << result.to_string();
}

TEST(StartChecksTest, NamesFirstDifferenceOnAllRanks) {
  MemoryStore store;
  for (const Status& result : check_all(store, {{{"lr", "0.1"}, {"seed", "1"}},
                                                {{"lr", "0.1"}, {"seed", "1"}},
                                                {{"lr", "0.1"}, {"seed", "2"}}})) {
    EXPECT_EQ(result.code(), StatusCode::kMismatch);
    EXPECT_THAT(result.message(), HasSubstr("rank 2: seed is 2, but 1 on rank 0; start all ranks"));
  }
}

TEST(StartChecksTest, NamesSettingThatOnlyOneRankHas) {
  for (const bool is_of_chief : {true, false}) {
    MemoryStore store;
    const SharedSettings with{{"lr", "0.1"}, {"ema", "0.9"}}, without{{"lr", "0.1"}};
    const auto results =
        is_of_chief ? check_all(store, {with, without}) : check_all(store, {without, with});
    const std::string text = is_of_chief ? "rank 1: ema is (unset), but 0.9 on rank 0"
                                         : "rank 1: ema is 0.9, but (unset) on rank 0";
    for (const Status& result : results) EXPECT_THAT(result.message(), HasSubstr(text));
  }
}

// The work of the chief is one read for each rank.
TEST(StartChecksTest, ComparesSettingsOfTenThousandRanks) {
  MemoryStore store;
  constexpr int kRanks = 10'000;
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(store
                    .set("settings/1/" + std::to_string(rank),
                         rank == kRanks - 1 ? R"({"lr":"2"})" : R"({"lr":"1"})")
                    .ok());
  const Status same =
      check_same_settings(store, member_of(0, kRanks), "1", {{"lr", "1"}}, far_deadline(), {});
  EXPECT_EQ(same.code(), StatusCode::kMismatch);
  EXPECT_THAT(same.message(), HasSubstr("rank 9999: lr is 2, but 1 on rank 0"));
}

TEST(StartChecksTest, ReceivesTextOfChief) {
  MemoryStore store;
  ASSERT_TRUE(receive_from_chief(store, member_of(0, 2), "2", "step 7", far_deadline(), {}).ok());
  const auto received =
      receive_from_chief(store, member_of(1, 2), "2", "ignored", far_deadline(), {});
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, "step 7");
}

TEST(StartChecksTest, NamesRankThatFailsMeanwhile) {
  MemoryStore store;
  std::jthread failing([&store] {
    announce_failure(store, member_of(2, 3),
                     Status(StatusCode::kCorrupt, "the file has no records"));
  });
  for (const int rank : {0, 1}) {
    const Status result =
        check_same_settings(store, member_of(rank, 3), "1", {}, far_deadline(), {});
    EXPECT_EQ(result.code(), StatusCode::kPeerLost);
    EXPECT_THAT(result.message(), HasSubstr("rank 2 failed: corrupt: the file has no records"));
  }
}

TEST(StartChecksTest, NamesRankThatIsMissingAtDeadline) {
  MemoryStore store;
  const StartWait past{.deadline = std::chrono::steady_clock::now()};
  const Status of_chief = check_same_settings(store, member_of(0, 2), "1", {}, past, {});
  EXPECT_EQ(of_chief.code(), StatusCode::kPeerLost);
  EXPECT_THAT(of_chief.message(), HasSubstr("rank 1 did not start in time"));
  const auto text = receive_from_chief(store, member_of(1, 2), "2", "", past, {});
  EXPECT_THAT(text.status().message(), HasSubstr("rank 0 did not start in time"));
}

void register_on_host(Store& store, int rank, const std::string& host) {
  ASSERT_TRUE(
      store.set("rank/" + std::to_string(rank), R"({"host":")" + host + R"(","pid":41})").ok());
}

TEST(StartChecksTest, NamesKilledRankAtOnce) {
  MemoryStore store;
  for (const int rank : {0, 1, 2}) register_on_host(store, rank, host_name());
  StartWait wait = far_deadline();
  // The chief waits for rank 1, which is slow, when rank 2 is killed.
  wait.has_exited = [](int rank) { return rank == 2; };
  const Status of_chief = check_same_settings(store, member_of(0, 3), "1", {}, wait, {});
  EXPECT_EQ(of_chief.code(), StatusCode::kPeerLost);
  EXPECT_THAT(of_chief.message(), HasSubstr("pid 41) exited without a reason"));
  EXPECT_THAT(of_chief.message(), HasSubstr("rank 2 ("));

  wait.has_exited = [](int rank) { return rank == 0; };
  const auto text = receive_from_chief(store, member_of(1, 3), "2", "", wait, {});
  EXPECT_THAT(text.status().message(), HasSubstr("rank 0 ("));
}

TEST(StartChecksTest, DoesNotTrustLocksOfOtherHosts) {
  MemoryStore store;
  register_on_host(store, 1, "another-" + host_name());
  const StartWait wait{.deadline = std::chrono::steady_clock::now(),
                       .has_exited = [](int) { return true; }};
  const Status of_chief = check_same_settings(store, member_of(0, 2), "1", {}, wait, {});
  EXPECT_THAT(of_chief.message(), HasSubstr("did not start in time"));
}

// Rank 1 has left after it sent its text.
TEST(StartChecksTest, EndsWaitForRankWhoseConnectionIsClosed) {
  MemoryStore store;
  StartWait wait = far_deadline();
  wait.find_closed = [](int) { return std::optional<std::string>("closed by peer"); };
  wait.lose = [](int rank, const std::string& reason) {
    return Status(StatusCode::kPeerLost, "rank " + std::to_string(rank) + " " + reason);
  };
  ASSERT_TRUE(gather_at_chief(store, member_of(1, 3), "1", "text", far_deadline(), {}).ok());
  const auto gathered = gather_at_chief(store, member_of(0, 3), "1", "own", wait, {});
  EXPECT_EQ(gathered.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(gathered.status().message(), "rank 2 closed by peer");
}

TEST(StartChecksTest, GathersTextsOfAllRanksAtChief) {
  MemoryStore store;
  for (const int rank : {2, 1}) {
    const auto sent = gather_at_chief(store, member_of(rank, 3), "1",
                                      "from " + std::to_string(rank), far_deadline(), {});
    ASSERT_TRUE(sent.ok());
    EXPECT_THAT(*sent, ::testing::IsEmpty());
  }
  const auto gathered = gather_at_chief(store, member_of(0, 3), "1", "own", far_deadline(), {});
  ASSERT_TRUE(gathered.ok());
  EXPECT_THAT(*gathered, ::testing::ElementsAre("own", "from 1", "from 2"));
}

TEST(StartChecksTest, EndsWaitOnStop) {
  MemoryStore store;
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(receive_from_chief(store, member_of(1, 2), "2", "", far_deadline(), stop.get_token())
                .status()
                .code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace stoker::group
