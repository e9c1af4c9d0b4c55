// SourceWait: the wait of a reading thread for the producer of its source, as other threads see it.
//
// Threads:  one thread waits; is_waiting() and polls() any.
// Blocking: wait() at most kStopInterval, so that the caller notices a stop.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "shared/base/file.h"

namespace stoker::data::stream {

// The interval at which waits check for a stop.
inline constexpr std::chrono::milliseconds kStopInterval{100};

class SourceWait {
 public:
  bool is_waiting() const { return waiting_.load(std::memory_order_relaxed); }
  uint64_t polls() const { return polls_.load(std::memory_order_relaxed); }
  void count_poll() { polls_.fetch_add(1, std::memory_order_relaxed); }
  // Waits until the descriptor can be read or has ended; false after kStopInterval. A descriptor of
  // -1 is never readable.
  bool wait(int fd);
  // The same for one of several.
  bool wait(std::span<pollfd> descriptors);

 private:
  // Written by the waiting thread; no other data depends on them.
  std::atomic<bool> waiting_{false};
  std::atomic<uint64_t> polls_{0};
};

// Whether the descriptor can be read or has ended, without waiting.
bool is_readable(int fd);

// FolderWatch: inotify events of a folder, which end a wait early.
//
// Events are only a hint: there are none from other hosts of a network file system, and none if the
// system has no inotify instance left.
//
// Threads: one at a time.
// Sandbox: the constructor makes system calls that the filter of a worker process does not allow;
//          what follows reads and polls.
class FolderWatch {
 public:
  // `events`: IN_CREATE, IN_MOVED_TO, ….
  FolderWatch(const std::string& path, uint32_t events);

  // Waits for an event; returns without one after kStopInterval.
  void wait(SourceWait& state);

 private:
  UniqueFd inotify_;  // invalid: wait() ends only by its timeout
};

}  // namespace stoker::data::stream
