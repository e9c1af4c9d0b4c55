#include "daemon/group/rank_watcher.h"

#include <fstream>
#include <utility>

#include "daemon/group/failure_record.h"
#include "daemon/group/socket_address.h"
#include "shared/base/deadline.h"
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

// In another PID namespace the number can be that of another process, so that an exit is not seen.
bool is_running(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t end = text.rfind(") ");  // "4711 (stokerd) S …"
  return end == std::string::npos || end + 2 >= text.size() ||
         (text[end + 2] != 'Z' && text[end + 2] != 'X');
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
    const auto found = find_lost();
    if (found && found == seen && record(*found)) {
      // First the record: others look for those of all ranks when they end.
      (void)write_failure_record(
          keys_, {.rank = environment_.rank, .lost_rank = found->rank, .reason = found->reason});
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

std::optional<RankWatcher::LostRank> RankWatcher::find_lost() {
  if (auto announced = find_announced()) return announced;
  for (int rank = 0; rank < environment_.world_size; ++rank)
    if (is_neighbor(environment_, rank) && has_exited(rank))
      return LostRank{.rank = rank, .reason = "its process has exited"};
  return std::nullopt;
}

std::optional<RankWatcher::LostRank> RankWatcher::find_announced() {
  const auto announced = announced_failure(keys_);
  if (!announced.ok() || !*announced || *announced == environment_.rank) return std::nullopt;
  const int rank = **announced;
  const auto record = read_failure_record(keys_, rank);
  if (!record.ok() || !*record || !(*record)->lost_rank)
    return LostRank{.rank = rank, .reason = "its failure was reported"};
  return LostRank{.rank = rank, .reason = "it left the group: " + (*record)->reason};
}

// A lock alone is no proof: network file systems can lose it, and files can be deleted.
bool RankWatcher::has_exited(int rank) {
  if (!has_exited_) return false;
  if (!records_.contains(rank))
    if (auto record = find_start_record(keys_, rank)) records_.emplace(rank, *std::move(record));
  const auto record = records_.find(rank);
  return record != records_.end() && record->second.host == host_name() && has_exited_(rank) &&
         !is_running(record->second.pid);
}

}  // namespace stoker::group
