// Limits: bounds on the resources that one client and all clients together can use.
// docs/control-protocol.md describes what happens when a limit is exceeded. Limits of a line are in
// shared/control/protocol.h.
//
// Threads: a value.
#pragma once

#include <chrono>
#include <cstddef>

namespace stoker::server {

struct Limits {
  size_t connections = 32;
  size_t reserved_connections = 4;    // of these, only for the owner and root
  size_t read_only_connections = 16;  // of all users with the read role together
  size_t connections_per_uid = 8;     // for a user who is neither the owner nor root
  size_t requests_in_flight = 4;      // per connection, without a reply so far
  size_t unsent_bytes = 1 << 20;      // per connection: replies that the client has not read
  // Per user, including new connections; also the burst size.
  double requests_per_s = 500;
  double changes_per_s = 20;  // per user: requests that change state
  // Per user: log lines about commands that the user may not execute, and their burst size. The
  // others are counted, so that no user can push executed commands out of the log.
  double denials_logged_per_s = 1.0 / 60;
  double denials_logged_burst = 5;
  // From the first byte of a line to its newline; also for reading the last reply.
  std::chrono::milliseconds line_time{5000};
  // Without a request, while none is in flight; or, subscribed, while the client reads nothing.
  std::chrono::milliseconds idle_time{60000};
  // Between two status lines of a subscription with an interval of 1 s.
  std::chrono::milliseconds status_period{1000};
  size_t file_requests = 8;  // waiting for the thread that reads and writes files
  // Delay before the next accept after a rejected connection.
  std::chrono::milliseconds rejection_pause{10};
  // The same after accept failed for lack of descriptors or memory.
  std::chrono::milliseconds accept_pause{100};
};

}  // namespace stoker::server
