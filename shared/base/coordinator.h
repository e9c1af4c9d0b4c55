// Coordinator: starts the threads of a process, stops them together and keeps the first stop
// reason.
//
// Modeled on TensorFlow's Coordinator: any thread can request a stop, the first request determines
// the outcome, and join() waits for all threads with a grace period and reports those that did not
// finish. Unlike in TensorFlow, a stop wakes every wait immediately (std::stop_token,
// std::stop_callback), and the failure of a thread is always reported.
//
// Threads:   every method may be called from any thread; join() only from the owner's thread.
// Blocking:  wait_for_stop() and join() wait at most for the given duration.
// Ownership: owns the threads that it starts. They block all signals, which are handled by the main
//            thread.
// Errors:    join() returns the first reported error. If there is none, it returns kTimedOut with
//            the names of the threads that are still running. This object cannot be destroyed while
//            such a thread runs: the program logs the names and calls _exit().
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "shared/base/status.h"

namespace stoker {

class Coordinator {
 public:
  Coordinator() = default;
  ~Coordinator();  // requests a stop and joins without a time limit
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Runs `body` in a new thread. A return value of ok, kCancelled or kClosed is a normal end; any
  // other status, and any exception, becomes request_stop() with that status. `name` is the thread
  // name shown by ps and debuggers, truncated to 15 characters by the kernel. After a stop the body
  // still runs, with a token that is already stopped, so that work passed to it is not lost. After
  // a stop and join() it is not started.
  void start(std::string name, std::function<Status(std::stop_token)> body);

  // Only the first call has an effect. An ok status is a clean stop.
  void request_stop(Status reason = {});
  bool should_stop() const { return stop_.stop_requested(); }
  // True if a stop was requested, false on timeout.
  bool wait_for_stop(std::chrono::nanoseconds timeout) const;
  std::stop_token token() const { return stop_.get_token(); }
  Status reason() const;  // of the stop; ok if there was none

  // Waits until all threads have finished or a stop is requested, then at most `grace` for the
  // remaining threads.
  Status join(std::chrono::nanoseconds grace);
  // True if all threads have finished. False if threads are running, whether or not a stop is
  // requested.
  bool all_joined() const;

 private:
  struct Worker {
    std::string name;
    bool ended = false;
    std::thread thread;
  };
  std::vector<std::string> running_names() const;  // requires mutex_
  void run_body(Worker& worker, const std::function<Status(std::stop_token)>& body);

  // Own synchronization.
  std::stop_source stop_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // a worker finished, or a stop was requested
  std::list<Worker> workers_;                // a list, because run_body() holds a reference
  bool stopped_ = false;
  bool joined_ = false;
  Status reason_;
};

}  // namespace stoker
