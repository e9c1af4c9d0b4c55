// Meeting: how the tasks of a cluster find each other, in the store that parameter server 0 serves, wait for
// each other at the start, and leave the reason why the run cannot continue.
//
// Threads:  values; pure functions. Of TaskWait one.
// Blocking: wait_for_task(); check_failure() for `grace`. A request to the store has its own limit.
// Errors:   kPeerLost: a task has not started in time, or has left its failure, with its code as the cause.
//           kClosed: the run has ended, with the reason. kCancelled.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "daemon/group/rendezvous.h"
#include "daemon/group/tcp_store.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/update_schedule.h"
#include "shared/base/deadline.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

// Between two checks of a task that waits: whether another one has failed.
inline constexpr std::chrono::milliseconds kFailureCheckInterval{500};

// Equal on all tasks, except for `address`.
struct Meeting {
  std::string store_address;  // numeric
  uint16_t store_port = 0;
  group::TcpStoreOptions store;
  std::string address;  // of this process: numeric
  std::chrono::milliseconds timeout{120'000};
  std::chrono::milliseconds start_timeout{600'000};  // until another task has started
  // Of the run directory; may be empty. Why the run has ended, so that no other task will start; empty: it has not.
  std::function<std::string()> find_end = {};
  std::function<bool()> is_chief_running = {};
};

// TaskWait: the wait of a task at its start for another one. Logs it after 10 s.
class TaskWait {
 public:
  // `awaited`: names the other task. The chief is waited for as long as it runs.
  TaskWait(const Meeting& meeting, std::string awaited, bool is_for_chief = false);

  // Between two attempts. Ok: continue.
  Status check();

 private:
  const Meeting& meeting_;
  const std::string awaited_;
  const bool is_for_chief_;
  const Deadline ended_from_;
  Deadline deadline_;
  group::StartDelayLog delay_;
};

// Until another task has set the key.
Status wait_for_task(group::Store& store, const std::string& key, const std::stop_token& stop,
                     TaskWait wait);

// Why the run cannot continue, for the other tasks. The first one is kept.
void announce_failure(group::Store& store, const ClusterTask& task, const Status& failure);
// kPeerLost if a task has announced one.
Status check_failure(group::Store& store, std::chrono::milliseconds grace = {});

// In the store: that a server serves, the number of starts of a worker, and the prefix of its connection
// to a server.
std::string ready_key(size_t server);
std::string life_key(size_t worker);
std::string connection_prefix(size_t server, const WorkerLife& worker);

}  // namespace stoker::parameter_server
