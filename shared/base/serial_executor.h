// SerialExecutor: a thread that executes requests one after another, in the order in which they were
// posted. A fixed number of them can wait. The caller decides what happens to one that is posted when
// there is no room, and to those that wait at the end.
//
// Threads:  owns one, on which requests are executed. post() from any thread; the others from that of
//           the owner.
// Blocking: drain() and join() at most for the given duration; the destructor until the request that is
//           being executed has ended. post() and close() never.
// Errors:   an exception of `execute` ends the thread, and is the status of join(). Requests are rejected as
//           after close(); those that wait are not executed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/base/thread_registry.h"

namespace stoker {

enum class PostResult { kPosted, kFull, kClosed };

template <typename Request>
class SerialExecutor {
 public:
  // `stop`: close() was called.
  using Execute = std::function<void(Request& request, const std::stop_token& stop)>;

  // `capacity`: of requests that wait. `name`: of the thread.
  SerialExecutor(std::string name, size_t capacity, Execute execute)
      : capacity_(capacity), execute_(std::move(execute)) {
    thread_.start(std::make_unique<ThreadRecord>(std::move(name), "execute request"),
                  [this](const std::stop_token& stop) { return run(stop); });
  }
  ~SerialExecutor() { (void)close(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // kFull: `capacity` requests wait. kClosed: after drain(), close() or an exception.
  [[nodiscard]] PostResult post(Request request) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return PostResult::kClosed;
    if (waiting_.size() >= capacity_) return PostResult::kFull;
    waiting_.push_back(std::move(request));
    changed_.notify_all();
    return PostResult::kPosted;
  }
  // Until the requests posted so far have been executed. False: they have not been within `timeout`, or
  // there was an exception.
  bool drain(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    const bool is_idle = changed_.wait_for(
        lock, timeout, [this] { return has_failed_ || (waiting_.empty() && !is_executing_); });
    return is_idle && !has_failed_;
  }
  // Returns the requests that wait, which are not executed.
  std::deque<Request> close() {
    thread_.request_stop();
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    return std::exchange(waiting_, {});
  }
  // After close(): Coordinator::join().
  Status join(std::chrono::nanoseconds grace) { return thread_.join(grace); }

 private:
  // Whether there is one.
  bool wait_for_request(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
    static constexpr ThreadActivity kWait{.operation = "wait for requests", .is_waiting = true};
    const ScopedActivity waiting(kWait);
    return changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
  }

  Status run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (wait_for_request(lock, stop)) {
      if (stop.stop_requested()) break;
      is_executing_ = true;
      const Status executed = catch_exceptions([&]() -> Status {
        Request next = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        execute_(next, stop);
        return {};
      });
      lock.lock();
      is_executing_ = false;
      has_failed_ = !executed.ok();
      is_closed_ = is_closed_ || has_failed_;
      changed_.notify_all();
      if (has_failed_) return executed;
    }
    return {};
  }

  const size_t capacity_;
  const Execute execute_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_.
  std::deque<Request> waiting_;
  bool is_executing_ = false;
  bool is_closed_ = false;
  bool has_failed_ = false;  // an exception has ended the thread

  Coordinator thread_;  // uses the members above
};

}  // namespace stoker
