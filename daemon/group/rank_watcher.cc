#include "daemon/group/rank_watcher.h"

#include <memory>
#include <utility>

#include "daemon/group/failure_record.h"
#include "daemon/group/rendezvous.h"
#include "shared/base/deadline.h"
#include "shared/base/thread_registry.h"

namespace stoker::group {
namespace {

constexpr ThreadActivity kSleep{.operation = "wait for next check of ranks", .is_waiting = true};

}  // namespace

RankWatcher::RankWatcher(Store& keys, int rank, FindClosed find_closed,
                         std::chrono::milliseconds interval, std::function<void()> on_lost)
    : keys_(keys),
      rank_(rank),
      find_closed_(std::move(find_closed)),
      interval_(interval),
      on_lost_(std::move(on_lost)) {
  thread_.start(std::make_unique<ThreadRecord>("rank-watcher", "watch ranks"),
                [this](const std::stop_token& stop) { return watch(stop); });
}

void RankWatcher::expect_ranks(bool is_expected) {
  const std::lock_guard lock(mutex_);
  is_expected_ = is_expected;
}

std::optional<RankWatcher::LostRank> RankWatcher::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void RankWatcher::stop() {
  thread_.request_stop();
  (void)thread_.join(std::chrono::hours(1));  // a request to the store has its own limit
}

Status RankWatcher::watch(const std::stop_token& stop) {
  std::optional<LostRank> seen;
  do {
    auto found = find_announced();
    if (!found) found = find_closed_();
    if (found && found == seen && record(*found)) {
      // First the record: others look for those of all ranks when they end.
      (void)write_failure_record(
          keys_, {.rank = rank_, .lost_rank = found->rank, .reason = found->reason});
      announce_loss(keys_, found->rank);
      on_lost_();
      return {};
    }
    seen = found;
    const ScopedActivity sleeping(kSleep);
    if (!sleep_until(stop, std::chrono::steady_clock::now() + interval_)) return {};
  } while (true);
}

// False if no rank is expected: the run may be about to end.
bool RankWatcher::record(const LostRank& found) {
  const std::lock_guard lock(mutex_);
  if (is_expected_) lost_ = found;
  return is_expected_;
}

std::optional<RankWatcher::LostRank> RankWatcher::find_announced() {
  const auto announced = announced_failure(keys_);
  if (!announced.ok() || !*announced || *announced == rank_) return std::nullopt;
  const int rank = **announced;
  const auto record = read_failure_record(keys_, rank);
  if (!record.ok() || !*record || !(*record)->lost_rank)
    return LostRank{.rank = rank, .reason = "its failure was reported"};
  return LostRank{.rank = rank, .reason = "it left the group: " + (*record)->reason};
}

}  // namespace stoker::group
