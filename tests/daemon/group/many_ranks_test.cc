// Ten thousand ranks: how they divide the samples, and what the start of each of them costs the store,
// which here is LibTorch's over TCP. The ranks are no processes: a few threads act for all of them, and a
// rank that would wait for the chief does not.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/rendezvous.h"
#include "daemon/group/socket_address.h"
#include "daemon/group/start_checks.h"
#include "daemon/group/tcp_store.h"
#include "shared/data/order/sample_plan.h"
#include "shared/ring/ticket_share.h"
#include "tests/daemon/group/counted_store.h"

namespace stoker::group {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 10'000;
constexpr int kThreads = 4;  // each with a connection, and the ranks of its stretch

// A connection of ranks that do not wait: what they wait for is as if it were set.
class ImpatientStore final : public CountedStore {
 public:
  using CountedStore::CountedStore;
  Status wait(const std::string&, Deadline, const std::stop_token&) override {
    ++requests_;
    return {};
  }
};

class ManyRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    auto listening = listen_on("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok()) << listening.status().message();
    port_ = listening->port;
    auto served = TcpStore::serve(*std::move(listening), options());
    ASSERT_TRUE(served.ok()) << served.status().message();
    chief_ = *std::move(served);
    for (auto& connection : connections_) {
      auto connected = TcpStore::connect("127.0.0.1", port_, options());
      ASSERT_TRUE(connected.ok()) << connected.status().message();
      connection = *std::move(connected);
    }
  }
  static TcpStoreOptions options() { return {.prefix = "stoker/", .server = "rank 0"}; }
  static LaunchEnvironment rank_of(int rank) {
    return {.launcher = Launcher::kTorchrun, .rank = rank, .world_size = kRanks};
  }
  static Deadline late() { return std::chrono::steady_clock::now() + std::chrono::minutes(2); }
  Result<std::string> join(Store& store, int rank) {
    const StartRecord own{.host = "node-" + std::to_string(rank / 8), .pid = 1000 + rank};
    return join_group(store, rank_of(rank), "runs/a", own, {}, {}, late(), {});
  }
  // Calls `start(store, rank)` for all ranks but the chief. Returns the most requests of one.
  template <typename Start>
  int for_other_ranks(const Start& start) {
    std::array<int, kThreads> most{};
    {
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
          for (int rank = 1 + thread; rank < kRanks; rank += kThreads) {
            ImpatientStore store(*connections_[static_cast<size_t>(thread)]);
            start(store, rank);
            most[static_cast<size_t>(thread)] =
                std::max(most[static_cast<size_t>(thread)], store.requests());
          }
        });
    }
    return *std::ranges::max_element(most);
  }

  uint16_t port_ = 0;
  std::unique_ptr<TcpStore> chief_;
  std::array<std::unique_ptr<TcpStore>, kThreads> connections_;
};

TEST_F(ManyRanksTest, JoinAndCompareSettingsWithFewRequestsEach) {
  Result<std::string> prefix = std::string();
  Status compared;
  {
    // The chief waits for all, with real waits.
    const std::jthread chief([&] {
      prefix = join(*chief_, 0);
      if (!prefix.ok()) return;
      PrefixedStore keys(*chief_, *prefix);
      compared =
          check_same_settings(keys, rank_of(0), "1", {{"lr", "1"}}, {.deadline = late()}, {});
    });
    ASSERT_TRUE(connections_[0]->wait("1/run", late(), {}).ok());
    const int to_join = for_other_ranks([this](Store& store, int rank) {
      const auto joined = join(store, rank);
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      EXPECT_EQ(*joined, "1/");
    });
    EXPECT_LE(to_join, 10);
    EXPECT_TRUE(connections_[0]->wait("1/complete", late(), {}).ok()) << "they would wait forever";

    const int to_compare = for_other_ranks([](Store& store, int rank) {
      PrefixedStore keys(store, "1/");
      const std::string lr = rank == kRanks - 1 ? "2" : "1";
      EXPECT_TRUE(
          check_same_settings(keys, rank_of(rank), "1", {{"lr", lr}}, {.deadline = late()}, {})
              .ok());
    });
    EXPECT_LE(to_compare, 3);
  }
  ASSERT_TRUE(prefix.ok()) << prefix.status().message();
  EXPECT_EQ(compared.code(), StatusCode::kMismatch);
  EXPECT_THAT(compared.message(),
              HasSubstr("rank 9999 (node-1249, pid 10999): lr is 2, but 1 on rank 0"));
}

// Each position of an epoch is on one rank, in the step and row that one process has it.
TEST(ManyRanksPlanTest, TrainsEachSampleOfEpochOnce) {
  for (const uint64_t tickets_per_step : {uint64_t{kRanks}, uint64_t{3 * kRanks}}) {
    constexpr uint64_t kBatch = 4, kSteps = 5;
    data::order::PlanOptions options;
    options.batch = kBatch;
    options.size = kBatch * kSteps * tickets_per_step;
    const data::order::SamplePlan plan(options);
    std::vector<bool> seen(options.size);
    uint64_t count = 0;
    for (uint64_t rank = 0; rank < kRanks; ++rank) {
      const ring::TicketShare share{
          .tickets_per_step = tickets_per_step, .rank = rank, .world_size = kRanks};
      ASSERT_TRUE(share.is_valid());
      std::array<data::order::PlannedSample, kBatch> row{};
      for (uint64_t index = 0; index < kSteps * share.length(); ++index) {
        const uint64_t ticket = share.ticket_at(index);
        ASSERT_EQ(ticket / tickets_per_step, index / share.length()) << "of another step";
        plan.at(ticket, 0, row);
        for (const auto& planned : row) {
          EXPECT_EQ(planned.epoch, 0u);
          ASSERT_FALSE(seen[planned.sample]) << "rank " << rank << ", ticket " << ticket;
          seen[planned.sample] = true;
          ++count;
        }
      }
    }
    EXPECT_EQ(count, options.size);
  }
}

}  // namespace
}  // namespace stoker::group
