#include "daemon/group/failure_record.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/daemon/group/memory_store.h"
#include "tests/support/temporary_directory.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;

constexpr int kWorldSize = 4;
constexpr milliseconds kNoGrace{0};
constexpr milliseconds kLongGrace{60'000};

void record_loss(Store& store, int rank, int lost_rank) {
  EXPECT_TRUE(write_failure_record(
                  store, {.rank = rank, .lost_rank = lost_rank, .reason = "connection closed"})
                  .ok());
}

bool is_unknown(int) { return false; }

FailedRank find(Store& store, int suspect, milliseconds grace = kNoGrace,
                const std::function<bool(int rank)>& has_exited = is_unknown) {
  auto failed = find_failed_rank(store, suspect, kWorldSize, grace, has_exited);
  EXPECT_TRUE(failed.ok()) << failed.status().message();
  return failed.ok() && *failed ? **std::move(failed) : FailedRank{.rank = -1};
}

TEST(FailureRecordTest, WritesErrorFileOfTorchrun) {
  const test::TemporaryDirectory scratch;
  const std::string path = scratch / "error.json";
  ASSERT_TRUE(write_error_file(default_file_system(), path, "out of \"memory\"",
                               std::chrono::seconds(1'700'000'000))
                  .ok());
  EXPECT_EQ(
      *read_file(path, 1000),
      R"({"message":{"message":"out of \"memory\"","extraInfo":{"timestamp":"1700000000"}}})");
}

TEST(FailureRecordTest, BlamesRankThatLeftWithoutRecord) {
  MemoryStore store;
  record_loss(store, 0, 1);
  EXPECT_EQ(find(store, 1), FailedRank{.rank = 1});
}

// Ranks notice one after the other: 3 lost 2, because 2 left after it lost 1.
TEST(FailureRecordTest, FollowsLossesToTheirCause) {
  MemoryStore store;
  record_loss(store, 3, 2);
  record_loss(store, 2, 1);
  EXPECT_EQ(find(store, 2), FailedRank{.rank = 1});
}

TEST(FailureRecordTest, ReturnsReasonOfRankThatFailed) {
  MemoryStore store;
  record_loss(store, 2, 1);
  ASSERT_TRUE(
      write_failure_record(
          store,
          {.rank = 1, .lost_rank = {}, .reason = "out of memory", .code = StatusCode::kOutOfMemory})
          .ok());
  EXPECT_EQ(find(store, 2),
            (FailedRank{.rank = 1, .reason = "out of memory", .code = StatusCode::kOutOfMemory}));
}

TEST(FailureRecordTest, KeepsFirstRecordOfRank) {
  MemoryStore store;
  ASSERT_TRUE(write_failure_record(store, {.rank = 1, .lost_rank = {}, .reason = "first"}).ok());
  ASSERT_TRUE(write_failure_record(store, {.rank = 1, .lost_rank = {}, .reason = "second"}).ok());
  EXPECT_EQ(find(store, 1).reason, "first");
}

TEST(FailureRecordTest, ReportsConnectionWhenRanksBlameEachOther) {
  MemoryStore store;
  record_loss(store, 1, 2);
  record_loss(store, 2, 1);
  EXPECT_EQ(find(store, 1),
            (FailedRank{.rank = 2, .reason = "connection closed", .disconnected_from = 1}));
}

TEST(FailureRecordTest, WaitsForRecordThatIsWrittenAfterConnectionWasClosed) {
  MemoryStore store;
  record_loss(store, 3, 2);
  std::jthread writer([&store] {
    record_loss(store, 2, 1);
    EXPECT_TRUE(write_failure_record(store, {.rank = 1, .lost_rank = {}, .reason = "late"}).ok());
  });
  EXPECT_EQ(find(store, 2, kLongGrace), (FailedRank{.rank = 1, .reason = "late"}));
}

// With a grace that is longer than the test may take.
TEST(FailureRecordTest, DoesNotWaitForRankThatHasExited) {
  MemoryStore store;
  int checks = 0;
  const auto exits_meanwhile = [&checks](int rank) { return rank == 1 && ++checks > 2; };
  record_loss(store, 0, 1);
  EXPECT_EQ(find(store, 1, std::chrono::hours(1), exits_meanwhile), FailedRank{.rank = 1});
  for (const int rank : {2, 3}) record_loss(store, rank, kUnknownRank);
  EXPECT_EQ(find(store, kUnknownRank, std::chrono::hours(1), exits_meanwhile),
            FailedRank{.rank = 1});
  ASSERT_TRUE(
      write_failure_record(store, {.rank = 1, .lost_rank = {}, .reason = "out of memory"}).ok());
  EXPECT_EQ(find(store, 1, std::chrono::hours(1), exits_meanwhile).reason, "out of memory");
}

// A collective of the backend does not tell which rank it lost.
TEST(FailureRecordTest, FindsRankWithoutRecordWhenItIsNotKnown) {
  MemoryStore store;
  for (const int rank : {0, 1, 3}) record_loss(store, rank, kUnknownRank);
  EXPECT_EQ(find(store, kUnknownRank), FailedRank{.rank = 2});
  record_loss(store, 2, 1);
  const auto none = find_failed_rank(store, kUnknownRank, kWorldSize, kNoGrace, is_unknown);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(FailureRecordTest, PrefersReasonOfRankThatFailedWhenItIsNotKnown) {
  MemoryStore store;
  record_loss(store, 0, kUnknownRank);
  ASSERT_TRUE(
      write_failure_record(store, {.rank = 3, .lost_rank = {}, .reason = "out of memory"}).ok());
  EXPECT_EQ(find(store, kUnknownRank), (FailedRank{.rank = 3, .reason = "out of memory"}));
  EXPECT_EQ(find(store, 0), (FailedRank{.rank = 3, .reason = "out of memory"}));
}

TEST(FailureRecordTest, RejectsCorruptRecord) {
  MemoryStore store;
  ASSERT_TRUE(store.set("failure/1", R"({"rank": 1})").ok());
  EXPECT_EQ(find_failed_rank(store, 1, kWorldSize, kNoGrace, is_unknown).status().code(),
            StatusCode::kCorrupt);
}

TEST(FailureRecordTest, FailsWhenStoreIsLost) {
  MemoryStore store;
  store.lose();
  EXPECT_EQ(find_failed_rank(store, 1, kWorldSize, kLongGrace, is_unknown).status().code(),
            StatusCode::kPeerLost);
}

}  // namespace
}  // namespace stoker::group
