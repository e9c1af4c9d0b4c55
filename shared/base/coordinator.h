// Coordinator: the threads of one process end together, and the first reason is the one that is
// kept.
//
// After TensorFlow's Coordinator: any thread may ask all of them to stop; the first request decides
// the outcome; join() waits for everybody with a period of grace and names those who did not come.
// Unlike it, a stop wakes every wait at once (std::stop_token, std::stop_callback), and a thread
// that fails can never end in silence.
//
// Threads:  every method may be called from any thread; join() from the owner's.
// Blocking: wait_for_stop() and join() wait at most as long as they are told.
// Owner:    owns the threads that it starts. They block all signals: those are the main thread's.
// Errors:   join() returns the first error that was reported; if none was, kTimedOut naming the
//           stragglers. While a straggler runs, this object cannot be destroyed: the program logs
//           the names and calls _exit().
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
  ~Coordinator();  // requests a stop and joins without limit
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // The body ends by returning: ok or kCancelled or kClosed is a normal end; any other status, and
  // any exception, is a request_stop() with it. `name` is what ps and a debugger show; the kernel
  // keeps 15 characters of it. After a stop it is started all the same, and told so by its token, for
  // what was handed to it must not be lost; after a stop and a join() it is not.
  void start(std::string name, std::function<Status(std::stop_token)> body);

  // The first call decides; later ones change nothing. An ok status is a clean stop.
  void request_stop(Status reason = {});
  bool should_stop() const { return stop_.stop_requested(); }
  // True when the stop was requested, false when the time is over.
  bool wait_for_stop(std::chrono::nanoseconds timeout) const;
  std::stop_token token() const { return stop_.get_token(); }
  Status reason() const;  // of the stop; ok while there was none

  // Waits until all threads have ended by themselves or a stop is requested, and then at most
  // `grace` for the rest.
  Status join(std::chrono::nanoseconds grace);
  // As join(), but does not wait for a stop first: returns false while threads run and no stop is
  // requested.
  bool all_joined() const;

 private:
  struct Worker {
    std::string name;
    bool ended = false;
    std::thread thread;
  };
  std::vector<std::string> running_names() const;  // with mutex_ held
  void run_body(Worker& worker, const std::function<Status(std::stop_token)>& body);

  // Own synchronisation.
  std::stop_source stop_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // a worker ended, or a stop was requested
  std::list<Worker> workers_;                // a list: run_body() holds a reference
  bool stopped_ = false;
  bool joined_ = false;
  Status reason_;
};

}  // namespace stoker
