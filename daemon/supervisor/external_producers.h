// ExternalProducers: processes that stokerd did not start and that fill its ring: another program of
// the user's, in any language, that asked for it over the control socket.
//
// Such a producer is in the ring's table like a reader, and held by a pidfd: when it ends, its
// tickets are handed on. It cannot be started again from here, and no sample is blamed for its death.
// What it writes into its tickets is its own affair: see feed.producers.
//
// Threads:  one at a time.
// Blocking: never.
// Owner:    the ring must outlive this object, which leaves the processes alone when it ends: a
//           closed ring is what tells them.
// Errors:   attach(): kBusy (no row is free), kIoError (descriptors).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "daemon/supervisor/progress_monitor.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/feed_config.h"
#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

// A process, and a hold on it.
struct ExternalProcess {
  pid_t pid = 0;
  UniqueFd pidfd;
};

struct Attachment {
  ring::ProducerId producer;
  UniqueFd ring;  // to be sent to the process
};
// What the process must know beside the ring itself, as one line of JSON.
std::string to_json(const Attachment& attachment, const config::FeedConfig& feed);

class ExternalProducers {
 public:
  // At most `max` at a time. A hung one is killed after `worker_timeout` (0: never).
  ExternalProducers(ring::ShmRing& ring, size_t max, std::chrono::nanoseconds worker_timeout)
      : ring_(ring), max_(max), worker_timeout_(worker_timeout) {}

  Result<Attachment> attach(ExternalProcess process);
  // Detaches those that ended, kills those that hang.
  void check_producers(std::chrono::nanoseconds now);

  size_t size() const { return producers_.size(); }
  std::vector<int> pidfds() const;  // readable when their process has ended

 private:
  struct Producer {
    ExternalProcess process;
    ring::ProducerId id;
    ProgressMonitor monitor;
    bool killed = false;
  };
  bool detach_if_ended(const Producer& producer);
  void watch_progress(Producer& producer, std::chrono::nanoseconds now);

  ring::ShmRing& ring_;
  const size_t max_;
  const std::chrono::nanoseconds worker_timeout_;
  std::list<Producer> producers_;
};

}  // namespace stoker::supervisor
