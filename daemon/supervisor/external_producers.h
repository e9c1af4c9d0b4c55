// ExternalProducers: processes not started by stokerd that fill its ring. Such a process is a
// program of the user, in any language, that attached over the control socket.
//
// An external producer has an entry in the ring's producer table like a worker and is tracked by a
// pidfd. When it exits, its tickets are requeued. stokerd cannot restart it and attributes its
// crash to no sample. The content of its tickets is its own responsibility: see feed.producers.
// A producer of another user that hangs cannot be killed. It loses its tickets and its entry, and
// must write no more: a slot that it writes to later may be that of another ticket.
//
// Threads:   one at a time.
// Blocking:  never.
// Ownership: the ring must outlive this object. The destructor does not end the processes; the
//            closed ring tells them to stop.
// Errors:    attach(): kBusy (the producer table is full), kIoError (descriptors).
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

// A process and the pidfd that tracks it.
struct ExternalProcess {
  pid_t pid = 0;
  UniqueFd pidfd;
};

struct Attachment {
  ring::ProducerId producer;
  UniqueFd ring;  // to be sent to the process
};
// What the process must know in addition to the ring, as one line of JSON.
std::string to_json(const Attachment& attachment, const config::FeedConfig& feed);

class ExternalProducers {
 public:
  // Up to `max` at a time. A producer without progress for `worker_timeout` is killed, or detached
  // if that is not permitted (0: never).
  ExternalProducers(ring::ShmRing& ring, size_t max, std::chrono::nanoseconds worker_timeout)
      : ring_(ring), max_(max), worker_timeout_(worker_timeout) {}

  Result<Attachment> attach(ExternalProcess process);
  // Detaches producers that have exited, and kills or detaches those that have timed out.
  void check_producers(std::chrono::nanoseconds now);

  size_t size() const;              // without those that were detached and still run
  std::vector<int> pidfds() const;  // readable after their process has ended

 private:
  struct Producer {
    ExternalProcess process;
    ring::ProducerId id;
    ProgressMonitor monitor;
    bool killed = false;
    bool is_detached = false;
  };
  bool detach_if_ended(const Producer& producer);
  void watch_progress(Producer& producer, std::chrono::nanoseconds now);

  ring::ShmRing& ring_;
  const size_t max_;
  const std::chrono::nanoseconds worker_timeout_;
  std::list<Producer> producers_;
};

}  // namespace stoker::supervisor
