#include "daemon/group/connection_watcher.h"

#include <memory>
#include <stdexcept>

#include <ATen/ops/zeros.h>

#include "daemon/group/tcp_store.h"
#include "shared/base/deadline.h"
#include "shared/base/thread_registry.h"

namespace stoker::group {
namespace {

constexpr ThreadActivity kSleep{.operation = "wait for next check of connections",
                                .is_waiting = true};
constexpr int kTag = 0x40000000;  // above those of transfers
// Of waits that end without it. One that reaches its timeout closes all connections.
constexpr std::chrono::milliseconds kNoWait{1};
// What Gloo tells the transfers of all connections when a wait of this process has reached its timeout.
constexpr const char* kOwnTimeout = "Application timeout";

}  // namespace

ConnectionWatcher::ConnectionWatcher(c10d::Backend& backend, const std::vector<int>& peers,
                                     std::chrono::milliseconds interval)
    : interval_(interval) {
  for (const int rank : peers) {
    Connection& connection = connections_[rank];
    try {
      std::vector<at::Tensor> byte{at::zeros({1}, at::kByte)};
      connection.maybe_receive = backend.recv(byte, rank, kTag);
    } catch (const std::exception& error) {
      connection.closed = short_message(error);
    }
  }
  thread_.start(std::make_unique<ThreadRecord>("connection-watcher", "watch connections"),
                [this](const std::stop_token& stop) { return watch(stop); });
}

std::optional<std::string> ConnectionWatcher::find_closed(int rank) {
  const std::lock_guard lock(mutex_);
  return check(rank);
}

// After an abort, a wait returns immediately, or throws the error of the connection.
std::optional<std::string> ConnectionWatcher::check(int rank) {
  const auto found = connections_.find(rank);
  if (found == connections_.end()) return std::nullopt;
  auto& [receive, closed] = found->second;
  if (receive) {
    try {
      receive->abort();
      (void)receive->wait(kNoWait);
      return std::nullopt;
    } catch (const std::exception& error) {
      closed = short_message(error);
      receive.reset();
    }
  }
  if (!closed.starts_with(kOwnTimeout)) return closed;
  connections_.erase(found);
  return std::nullopt;
}

// During a wait for a transfer.
class ConnectionWatcher::Awaited {
 public:
  Awaited(ConnectionWatcher& watcher, c10d::Work& transfer, int rank) : watcher_(watcher) {
    watcher_.set_awaited(&transfer, rank);
  }
  ~Awaited() { watcher_.set_awaited(nullptr, 0); }

 private:
  ConnectionWatcher& watcher_;
};

bool ConnectionWatcher::wait(c10d::Work& transfer, int rank, std::chrono::milliseconds timeout) {
  {
    const Awaited awaited(*this, transfer, rank);
    if (transfer.wait(timeout)) return true;
  }
  const auto closed = find_closed(rank);
  if (!closed) return false;
  // It may have been completed before.
  try {
    if (transfer.wait(kNoWait)) return true;
  } catch (const std::exception&) {
    // That of the timeout.
  }
  throw std::runtime_error(*closed);
}

// The first receive that reaches its timeout closes all connections; the others then have an error.
void ConnectionWatcher::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& [rank, connection] : connections_) {
    if (!connection.maybe_receive) continue;
    try {
      (void)connection.maybe_receive->wait(kNoWait);
    } catch (const std::exception&) {
      // As expected.
    }
  }
  connections_.clear();
}

void ConnectionWatcher::set_awaited(c10d::Work* maybe_transfer, int rank) {
  const std::lock_guard lock(mutex_);
  maybe_awaited_ = maybe_transfer;
  awaited_rank_ = rank;
}

Status ConnectionWatcher::watch(const std::stop_token& stop) {
  const ScopedActivity sleeping(kSleep);
  while (sleep_until(stop, std::chrono::steady_clock::now() + interval_)) {
    const std::lock_guard lock(mutex_);
    if (maybe_awaited_ != nullptr && check(awaited_rank_)) maybe_awaited_->abort();
  }
  return {};
}

}  // namespace stoker::group
