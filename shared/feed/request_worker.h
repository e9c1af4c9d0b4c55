// RequestWorker: a worker process (stoker-feed) that answers one request at a time, with its
// sandbox and limits (feed.sandbox, feed.worker_memory_limit_mib, feed.worker_timeout_seconds). The
// client of read_protocol.h.
//
// The process computes only while the calling thread waits for its reply, so that both together use one
// core. One that ends, does not answer in time or sends an impossible reply is replaced by the next
// prepare().
//
// Threads:   one at a time. The kernel ends the process together with the thread that started it:
//            the one that called prepare().
// Blocking:  prepare() until the process is ready, request() until it answers or is killed, after
//            feed.worker_timeout_seconds. A process is not killed without this setting, nor while a
//            busy machine gives it no time (if its state in /proc is hidden: no CPU time at all for
//            this long). Both end within 20 ms after Service::should_stop returns true.
// Ownership: owns the process and the shared memory; the configuration must outlive the object.
// Errors:    prepare(): those that the process reports; kPermission: sandbox_refused(); kInternal:
//            it ends repeatedly before it is ready; kCancelled: should_stop.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/resource_use.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/feed/read_protocol.h"
#include "shared/feed/worker_arguments.h"
#include "shared/feed/worker_process.h"
#include "shared/ring/segment.h"

namespace stoker::feed {

class RequestWorker {
 public:
  // What the process does.
  struct Service {
    std::string dataset;                         // its name: data.NAME
    std::string feed_program;                    // path of stoker-feed
    WorkerArguments arguments = {};              // without those of every RequestWorker
    int config_fd = -1;                          // make_config_file()
    std::optional<double> timeout_seconds = {};  // for each item of a request; none: no limit
    // Called while a process starts or answers. If it throws, the object can only be destroyed.
    std::function<bool()> should_stop = {};
  };
  // How a request ended.
  struct Attempt {
    enum class End {
      kAnswered,    // `reply` has the serial number of the request; the rest is not checked
      kCrashed,     // the process has ended, possibly because of the request
      kWaiting,     // it was killed while it waited, which no request causes
      kNotStarted,  // there is no process; `status` says why, such as kCancelled
    };
    End end = End::kAnswered;
    ReadReply reply = {};
    Status status = {};
    std::string cause = {};                   // kCrashed, kWaiting
    StatusCode code = StatusCode::kInternal;  // kCrashed: of an error with this cause
    std::string hint = {};                    // kCrashed: what to do about it
  };

  explicit RequestWorker(Service service) : service_(std::move(service)) {}

  // Starts a process unless one with at least so much shared memory runs.
  Status prepare(uint64_t memory_bytes);
  // After prepare(). Another process can be writing to it.
  std::span<std::byte> memory() const { return running_->memory.bytes(); }
  // After prepare(). `message` is a message of read_protocol.h for `num_items` items.
  template <typename Request>
  Attempt request(Request& message, uint64_t num_items) {
    message.serial = ++running_->serial;
    return exchange(std::as_bytes(std::span(&message, 1)).first(message.bytes()), num_items);
  }
  // Ends the process, whose last reply is impossible.
  Attempt reject(std::string cause) { return end_crashed(std::move(cause)); }
  // Ends the process, and releases its memory.
  void end();

  // What the processes have used so far; resident memory: that of the running one.
  ProcessUse use() const;

  pid_t process_id() const { return running_ ? running_->process.pid() : -1; }  // -1: none

 private:
  struct Running {
    WorkerProcess process;
    UniqueFd socket;
    // Not reused: a process that the kernel cannot end may still be writing to it.
    ring::Segment memory;
    uint64_t serial = kReadySerial;  // of the last request
  };

  Status spawn(uint64_t memory_bytes);
  Attempt exchange(std::span<const std::byte> message, uint64_t num_items);
  // 0 items: until the process is ready, without a limit.
  Attempt wait_for_reply(uint64_t num_items);
  Attempt receive();
  Attempt end_crashed(std::string cause);

  const Service service_;
  std::optional<Running> running_;
  ProcessUse ended_use_;  // of the processes before
};

// The configuration for worker processes, in a file without a name that no process can modify: a
// worker must not be able to change the settings of its successor.
Result<UniqueFd> make_config_file(const config::Config& config);

}  // namespace stoker::feed
