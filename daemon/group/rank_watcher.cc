#include "daemon/group/rank_watcher.h"

#include <condition_variable>
#include <utility>

#include "daemon/group/socket_address.h"
#include "shared/base/thread_registry.h"

namespace stoker::group {
namespace {

constexpr ThreadActivity kSleep{.operation = "wait for next check of ranks", .is_waiting = true};

// Launchers start the ranks of a host one after the other, unless they tell the hosts.
bool is_neighbor(const LaunchEnvironment& environment, int rank) {
  if (rank == environment.rank) return false;
  const auto& hosts = environment.rank_hosts;
  if (!hosts.empty())
    return hosts[static_cast<size_t>(rank)] == hosts[static_cast<size_t>(environment.rank)];
  const int first = environment.rank - environment.local_rank;
  return rank >= first && rank < first + environment.local_world_size;
}

}  // namespace

RankWatcher::RankWatcher(Store& keys, const LaunchEnvironment& environment, HasExited has_exited,
                         std::chrono::milliseconds interval, std::function<void()> on_lost)
    : keys_(keys),
      environment_(environment),
      has_exited_(std::move(has_exited)),
      interval_(interval),
      on_lost_(std::move(on_lost)) {
  thread_.start("rank-watcher", [this](const std::stop_token& stop) { return watch(stop); });
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
  std::condition_variable_any never;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    lock.unlock();
    auto found = find_lost();
    lock.lock();
    if (found) {
      lost_ = std::move(found);
      lock.unlock();
      on_lost_();
      return {};
    }
    const ScopedActivity sleeping(kSleep);
    never.wait_for(lock, stop, interval_, [] { return false; });
  }
  return {};
}

std::optional<RankWatcher::LostRank> RankWatcher::find_lost() {
  const auto announced = announced_failure(keys_);
  if (announced.ok() && *announced && *announced != environment_.rank)
    return LostRank{.rank = **announced, .reason = "its failure was reported"};
  // That of a launcher can be lost without a rank.
  if (!announced.ok() && !environment_.launcher_serves_store)
    return LostRank{.rank = 0, .reason = announced.status().message()};
  for (int rank = 0; rank < environment_.world_size; ++rank) {
    if (!is_neighbor(environment_, rank)) continue;
    const Status killed = check_killed(keys_, environment_, has_exited_, rank);
    if (killed.ok()) continue;
    announce_loss(keys_, rank);
    return LostRank{.rank = rank, .reason = "its process has exited"};
  }
  return std::nullopt;
}

}  // namespace stoker::group
