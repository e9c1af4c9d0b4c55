// Meeting: how the tasks of a cluster find each other, in the store that parameter server 0 serves.
//
// Threads: values; pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/group/tcp_store.h"
#include "daemon/parameter_server/update_schedule.h"

namespace stoker::parameter_server {

// Equal on all tasks, except for `address`.
struct Meeting {
  std::string store_address;  // numeric
  uint16_t store_port = 0;
  group::TcpStoreOptions store;
  std::string address;  // of this process: numeric
  std::chrono::milliseconds timeout{120'000};
  std::chrono::milliseconds start_timeout{600'000};  // of a worker, until all servers serve
};

// In the store: that a server serves, the number of starts of a worker, and the prefix of its connection
// to a server.
std::string ready_key(size_t server);
std::string life_key(size_t worker);
std::string connection_prefix(size_t server, const WorkerLife& worker);

}  // namespace stoker::parameter_server
