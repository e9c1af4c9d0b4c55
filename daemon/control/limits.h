// Limits: what one client, and all of them together, may cost the daemon. docs/control-protocol.md
// says what happens past each. Limits of one line are in shared/control/protocol.h.
//
// Threads: a value.
#pragma once

#include <chrono>
#include <cstddef>

namespace stoker::control {

struct Limits {
  size_t connections = 32;
  size_t reserved_connections = 4;  // of these, only for the owner and root
  size_t connections_per_uid = 8;   // of a user who is neither owner nor root
  size_t requests_in_flight = 4;    // of one connection: asked, and not yet answered
  size_t unsent_bytes = 1 << 20;    // of one connection: replies that the client does not read
  double requests_per_s =
      500;                    // of one user, connections made included; a burst of as many is fine
  double changes_per_s = 20;  // of one user: requests that change state
  std::chrono::milliseconds line_time{
      5000};  // from a line's first byte to its newline; also for taking a last reply
  std::chrono::milliseconds idle_time{60000};  // without a request, and none in flight
  std::chrono::milliseconds rejection_pause{
      10};  // before the next connection is accepted after one was turned away
  std::chrono::milliseconds accept_pause{
      100};  // the same after the system had no descriptor or memory for one
};

}  // namespace stoker::control
