#include "shared/base/coordinator.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "shared/base/log.h"

namespace stoker {
namespace {

// A new thread inherits the signal mask of the thread that starts it. Blocking all signals around
// the start leaves no window in which a worker could receive a signal meant for the main thread.
class BlockedSignalsGuard {
 public:
  BlockedSignalsGuard() {
    sigset_t all;
    sigfillset(&all);
    // SIGSYS is raised by the thread itself. If it is blocked, the kernel kills the process without
    // running the handler that would report the forbidden system call.
    sigdelset(&all, SIGSYS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignalsGuard() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignalsGuard(const BlockedSignalsGuard&) = delete;
  BlockedSignalsGuard& operator=(const BlockedSignalsGuard&) = delete;

 private:
  sigset_t before_;
};

bool is_normal_end(const Status& status) {
  return status.ok() || status.code() == StatusCode::kCancelled ||
         status.code() == StatusCode::kClosed;
}

Status run_catching(const std::string& name, const std::function<Status(std::stop_token)>& body,
                    std::stop_token token) {
  try {
    return body(std::move(token)).with_context(name);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, name + ": out of memory");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, name + ": " + error.what());
  } catch (...) {
    return Status(StatusCode::kInternal, name + ": exception of an unknown type");
  }
}

}  // namespace

Coordinator::~Coordinator() {
  request_stop();
  {
    const std::lock_guard lock(mutex_);
    joined_ = true;
  }
  for (auto& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
}

void Coordinator::start(std::string name, std::function<Status(std::stop_token)> body) {
  const std::lock_guard lock(mutex_);
  if (joined_) return;  // called by a thread that outlived join(), possibly during the destructor
  Worker& worker = workers_.emplace_back();
  worker.name = std::move(name);
  const BlockedSignalsGuard blocked;
  worker.thread = std::thread([this, &worker, run = std::move(body)] { run_body(worker, run); });
}

void Coordinator::run_body(Worker& worker, const std::function<Status(std::stop_token)>& body) {
  pthread_setname_np(pthread_self(), worker.name.substr(0, 15).c_str());
  const Status status = run_catching(worker.name, body, stop_.get_token());
  if (!is_normal_end(status)) request_stop(status);
  const std::lock_guard lock(mutex_);
  worker.ended = true;
  changed_.notify_all();
}

void Coordinator::request_stop(Status reason) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
      if (!reason.ok())
        log_warn("shutdown already in progress", {{"additional_reason", reason.to_string()}});
      return;
    }
    stopped_ = true;
    reason_ = std::move(reason);
  }
  stop_.request_stop();  // outside the lock, because it runs the stop callbacks of waiting threads
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Coordinator::wait_for_stop(std::chrono::nanoseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return stopped_; });
}

Status Coordinator::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

bool Coordinator::all_joined() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.ended; });
}

std::vector<std::string> Coordinator::running_names() const {
  std::vector<std::string> names;
  for (const auto& worker : workers_)
    if (!worker.ended) names.push_back(worker.name);
  return names;
}

Status Coordinator::join(std::chrono::nanoseconds grace) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || running_names().empty(); });
  changed_.wait_for(lock, grace, [this] { return running_names().empty(); });
  const auto running = running_names();
  joined_ = stopped_;
  for (auto& worker : workers_)
    if (worker.ended && worker.thread.joinable()) worker.thread.join();
  if (!reason_.ok() || running.empty()) return reason_;
  std::string names;
  for (const auto& name : running) names += (names.empty() ? "" : ", ") + name;
  return Status(StatusCode::kTimedOut,
                "threads that did not stop within the grace period: " + names);
}

}  // namespace stoker
