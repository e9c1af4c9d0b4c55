// ConnectionWatcher: finds connections of a Gloo group that are closed, and ends waits for their transfers.
//
// When a connection closes, Gloo passes the error to transfers that wait for the other side to begin, and to later ones. It
// forgets a send that waits until it can be written, and a receive of which bytes have arrived
// (Pair::signalException() in gloo/transport/tcp/pair.cc): their wait ends by its timeout only. Each rank therefore posts a receive from
// each other rank, which is never sent: such a receive always gets the error. It costs one message per connection, when it opens.
//
// Threads:  has its own; find_closed() from any, the others from the thread that uses the backend.
// Blocking: wait() only; close() for about 1 ms.
// Owner:    the backend must outlive this object, or live until close().
// Errors:   Gloo's exceptions.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"

namespace stoker::group {

class ConnectionWatcher {
 public:
  // `interval`: in which it checks the connection of a transfer that is awaited.
  ConnectionWatcher(c10d::Backend& backend, const std::vector<int>& peers,
                    std::chrono::milliseconds interval);

  // Why the connection to the rank is closed; nullopt: it is open, or this process has closed it. All that the rank had sent
  // before has been received.
  std::optional<std::string> find_closed(int rank);
  // As Work::wait() for a transfer to or from the rank: false after an abort, and an exception after the timeout. Also an
  // exception if the connection is closed and the transfer is not complete.
  bool wait(c10d::Work& transfer, int rank, std::chrono::milliseconds timeout);
  // Closes the connections of the backend, so that the other ranks notice it even if the backend cannot be destroyed. Then
  // none is known as closed.
  void close();

 private:
  // The receive that is never sent, or why the connection is closed.
  struct Connection {
    c10::intrusive_ptr<c10d::Work> maybe_receive;
    std::string closed;
  };
  class Awaited;

  Status watch(const std::stop_token& stop);
  std::optional<std::string> check(int rank);  // requires mutex_
  void set_awaited(c10d::Work* maybe_transfer, int rank);

  const std::chrono::milliseconds interval_;  // constant after construction

  std::mutex mutex_;
  std::map<int, Connection> connections_;  // by rank; guarded by mutex_
  c10d::Work* maybe_awaited_ = nullptr;    // guarded by mutex_
  int awaited_rank_ = 0;                   // guarded by mutex_

  Coordinator thread_;  // last: uses the members above
};

}  // namespace stoker::group
