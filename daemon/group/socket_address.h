// Addresses and sockets with which a group starts. Store and ranks listen on one interface only,
// because gradients are exchanged without authentication.
//
// Threads:  functions of their arguments.
// Blocking: wait_for_listener() and connect_to() until `deadline`, a stop wakes the former within 100 ms;
//           resolving a name as long as the system's resolver.
// Errors:   kInvalidArgument: an address or interface is not one of this host. kBusy: the port is in
//           use. kTimedOut: nothing listens, with the last error. kCancelled: stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::group {

struct ListeningPort {
  UniqueFd fd;
  std::string address;  // numeric
  uint16_t port = 0;
};

// Listens on the address of this host that `host` resolves to; port 0 chooses a free one.
Result<ListeningPort> listen_on(const std::string& host, uint16_t port);

// Waits until a process listens on `host` and `port`; returns its numeric address. A name that does
// not resolve yet, such as that of a pod that has not started, is retried. `on_retry`: with the last error;
// its own ends the wait. May be empty.
Result<std::string> wait_for_listener(
    const std::string& host, uint16_t port, Deadline deadline, const std::stop_token& stop,
    const std::function<Status(const Status& last)>& on_retry = {});

// A nonblocking connection to a numeric address. kTimedOut: the host does not respond.
Result<UniqueFd> connect_to(const std::string& address, uint16_t port, Deadline deadline);

// Numeric address of this host on `interface` (a name or an address), or, for auto, that from which
// it reaches `peer`, a numeric address.
Result<std::string> own_address(const std::string& interface, const std::string& peer);
bool is_loopback(const std::string& address);

// "10.0.0.5:29500", "[::1]:29500"
std::string join_host_and_port(const std::string& host, uint16_t port);

// Name of this host.
std::string host_name();

}  // namespace stoker::group
