#include "daemon/group/rank_watcher.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/failure_record.h"
#include "daemon/group/rendezvous.h"
#include "tests/daemon/group/memory_store.h"
#include "tests/support/eventually.h"

namespace stoker::group {
namespace {

using testing::HasSubstr;

// Rank 2 of a group of four ranks watches.
class RankWatcherTest : public testing::Test {
 protected:
  void watch(bool is_expected = true) {
    watcher_ = std::make_unique<RankWatcher>(
        store_, 2,
        [this]() -> std::optional<RankWatcher::LostRank> {
          ++questions_;
          if (!is_closed_) return std::nullopt;
          return RankWatcher::LostRank{.rank = 3, .reason = "closed by peer"};
        },
        std::chrono::milliseconds(1), [this] { found_.set_value(watcher_->lost().has_value()); });
    watcher_->expect_ranks(is_expected);
  }
  void expect_lost(int rank, const std::string& reason) {
    auto found = found_.get_future();
    ASSERT_EQ(found.wait_for(std::chrono::seconds(100)), std::future_status::ready);
    EXPECT_TRUE(found.get()) << "is known before others are called";
    EXPECT_EQ(watcher_->lost()->rank, rank);
    EXPECT_THAT(watcher_->lost()->reason, HasSubstr(reason));
  }
  // Until the watcher has checked the connections often enough.
  void expect_nothing_lost() {
    const int before = questions_;
    EXPECT_TRUE(test::eventually([&] { return questions_ >= before + 4 || watcher_->lost(); }));
    EXPECT_FALSE(watcher_->lost());
  }

  MemoryStore store_;
  std::atomic<int> questions_{0};
  std::atomic<bool> is_closed_{false};
  std::promise<bool> found_;
  std::unique_ptr<RankWatcher> watcher_;
};

TEST_F(RankWatcherTest, FindsRankWhoseConnectionIsClosedAndTellsTheOthers) {
  watch();
  expect_nothing_lost();
  is_closed_ = true;
  expect_lost(3, "closed by peer");
  const auto announced = announced_failure(store_);
  ASSERT_TRUE(announced.ok());
  EXPECT_EQ(*announced, 3);
  const auto record = read_failure_record(store_, 2);
  ASSERT_TRUE(record.ok());
  ASSERT_TRUE(record->has_value()) << "others look for it";
  EXPECT_EQ((*record)->lost_rank, 3);
  const Status failed = check_failed(store_, {.rank = 0, .world_size = 4});
  EXPECT_THAT(failed.message(), HasSubstr("exited without a reason"));
}

// When the collectives of all are complete, a rank exits before others have saved.
TEST_F(RankWatcherTest, FindsNothingWhileNoRankIsExpected) {
  is_closed_ = true;
  watch(false);
  expect_nothing_lost();
  watcher_->expect_ranks(true);
  expect_lost(3, "closed by peer");
}

TEST_F(RankWatcherTest, FindsRankThatHasReportedItsFailure) {
  watch();
  expect_nothing_lost();
  announce_failure(store_, {.rank = 1, .world_size = 4}, Status(StatusCode::kOutOfMemory, "full"));
  expect_lost(1, "was reported");
}

// While it still saves what was complete before.
TEST_F(RankWatcherTest, IgnoresOwnFailure) {
  watch();
  announce_failure(store_, {.rank = 2, .world_size = 4}, Status(StatusCode::kOutOfMemory, "full"));
  expect_nothing_lost();
}

TEST_F(RankWatcherTest, FindsRankThatLeavesBecauseItLostAnother) {
  watch();
  (void)write_failure_record(store_, {.rank = 1, .lost_rank = kUnknownRank, .reason = "unhandled"});
  announce_loss(store_, 1);
  expect_lost(1, "it left the group: unhandled");
  const Status failed = check_failed(store_, {.rank = 0, .world_size = 4});
  EXPECT_THAT(failed.message(), HasSubstr("left the group: unhandled"));
}

// A store that is silent for a while is no loss.
TEST_F(RankWatcherTest, KnowsOnlyConnectionsWithoutStore) {
  watch();
  expect_nothing_lost();
  store_.lose();
  expect_nothing_lost();
  is_closed_ = true;
  expect_lost(3, "closed by peer");
}

TEST_F(RankWatcherTest, FindsNothingAfterStop) {
  watch();
  expect_nothing_lost();
  watcher_->stop();
  announce_loss(store_, 1);
  EXPECT_FALSE(watcher_->lost());
}

}  // namespace
}  // namespace stoker::group
