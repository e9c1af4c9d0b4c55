// Coordinator: starts the threads of a process, stops them together and keeps the first stop
// reason.
//
// Modeled on TensorFlow's Coordinator: any thread can request a stop, the first request determines
// the outcome, and join() waits for all threads with a grace period and reports those that did not
// finish. Unlike in TensorFlow, a stop wakes every wait immediately (std::stop_token,
// std::stop_callback), and the failure of a thread is always reported.
//
// Threads:   every method may be called from any thread; join() and clear_stop() only from the
//            owner's thread.
// Blocking:  wait_for_stop() and join() wait at most for the given duration, join() from the stop;
//            repeat_until_end() until then.
// Ownership: owns the threads that it starts. They block all signals, which are handled by the main
//            thread. Each is listed by list_threads() until this object is destroyed.
// Errors:    join() returns the first reported error. If there is none, it returns kTimedOut with
//            the names of the threads that are still running. This object cannot be destroyed while
//            such a thread runs: the program logs the names and calls _exit().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "shared/base/status.h"
#include "shared/base/thread_registry.h"

namespace stoker {

// Ok, kCancelled or kClosed.
bool is_normal_end(const Status& status);

// The status of `body`, or one for the exception that it threw.
Status catch_exceptions(const std::function<Status()>& body);
// kInternal for a kCancelled or kClosed that no stop explains, because callers take both for a
// normal end. Other statuses are returned unchanged.
Status require_stop(Status status, bool is_stop_requested);

class Coordinator {
 private:
  struct Worker;

 public:
  using Body = std::function<Status(std::stop_token)>;

  Coordinator() = default;
  ~Coordinator();  // requests a stop and joins without a time limit
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // ---- Threads

  // Runs `body` in a new thread; its result and its exceptions are treated as by
  // stop_on_exception(). After a stop the body still runs, with a token that is already stopped, so
  // that work passed to it is not lost. After a stop and join() it is not started. Throws
  // std::system_error if the system does not permit another thread.
  void start(std::string name, Body body);
  void start(std::unique_ptr<ThreadRecord> record, Body body);

  // A thread that something else has started, for its lifetime.
  class RegisteredThread {
   public:
    ~RegisteredThread();
    RegisteredThread(const RegisteredThread&) = delete;
    RegisteredThread& operator=(const RegisteredThread&) = delete;

   private:
    friend class Coordinator;
    RegisteredThread(Coordinator& coordinator, std::string name);
    Coordinator& coordinator_;
    Worker* maybe_worker_;  // null: registered after a stop and join()
  };
  // Registers the calling thread: join() waits until the returned object is destroyed, in the same
  // thread and before the coordinator.
  [[nodiscard]] RegisteredThread register_thread(std::string name) {
    return RegisteredThread(*this, std::move(name));
  }

  // Runs `body` in the calling thread. A return value of ok, kCancelled or kClosed is a normal end;
  // any other status, and any exception, becomes request_stop() with that status; that of an exception
  // has `name`.
  Status stop_on_exception(const std::string& name, const Body& body);

  // ---- Stop

  // Only the first call has an effect. An ok status is a clean stop.
  void request_stop(Status reason = {});
  bool should_stop() const { return stopped_.load(std::memory_order_acquire); }
  // True if a stop was requested, false on timeout.
  bool wait_for_stop(std::chrono::nanoseconds timeout) const;
  // Of the next stop: clear_stop() replaces it.
  std::stop_token token() const;
  Status reason() const;  // of the stop; ok if there was none
  // Forgets the stop, its reason and the threads that have finished, so that others can be started.
  // kBusy: threads are running, by name; the stop remains.
  Status clear_stop();

  // ---- End

  // Waits until all threads have finished or a stop is requested, then at most `grace` for the
  // remaining threads.
  Status join(std::chrono::nanoseconds grace);
  // Calls `work` at once and every `interval`, until all threads have finished or a stop is requested:
  // what the owner does until join().
  void repeat_until_end(std::chrono::nanoseconds interval, const std::function<void()>& work) const;
  // True if all threads have finished. False if threads are running, whether or not a stop is
  // requested.
  bool all_joined() const;

 private:
  struct Worker {
    std::unique_ptr<ThreadRecord> record;
    bool ended = true;
    std::thread thread;  // not joinable: a registered thread
  };
  std::string running_names() const;  // "a, b"; requires mutex_
  void run_body(Worker& worker, const Body& body);
  void end_worker(Worker& worker);

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // a worker finished, or a stop was requested
  std::list<Worker> workers_;                // a list, because run_body() holds a reference
  std::stop_source stop_;
  bool joined_ = false;
  Status reason_;
  std::set<std::string> known_reasons_;  // each is logged once

  // Written under mutex_; also read without it.
  std::atomic<bool> stopped_ = false;
};

}  // namespace stoker
