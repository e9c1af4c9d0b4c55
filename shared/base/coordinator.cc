#include "shared/base/coordinator.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <utility>

#include "shared/base/exception_status.h"
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

}  // namespace

bool is_normal_end(const Status& status) {
  return status.ok() || status.code() == StatusCode::kCancelled ||
         status.code() == StatusCode::kClosed;
}

Status require_stop(Status status, bool is_stop_requested) {
  if (status.ok() || is_stop_requested || !is_normal_end(status)) return status;
  return Status(StatusCode::kInternal, "ended without a stop request: " + status.to_string());
}

Status catch_exceptions(const std::function<Status()>& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return to_status(error);
  } catch (...) {
    return Status(StatusCode::kInternal, "exception of an unknown type");
  }
}

Coordinator::~Coordinator() {
  request_stop();
  {
    std::unique_lock lock(mutex_);
    joined_ = true;
    changed_.wait(lock, [this] { return running_names().empty(); });
  }
  for (auto& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
}

// ---- Threads

void Coordinator::start(std::string name, Body body) {
  start(std::make_unique<ThreadRecord>(std::move(name)), std::move(body));
}

void Coordinator::start(std::unique_ptr<ThreadRecord> record, Body body) {
  const std::lock_guard lock(mutex_);
  if (joined_) return;  // called by a thread that outlived join(), possibly during the destructor
  Worker& worker = workers_.emplace_back();
  worker.record = std::move(record);
  const BlockedSignalsGuard blocked;
  worker.thread = std::thread([this, &worker, run = std::move(body)] { run_body(worker, run); });
  worker.ended = false;  // only now, in case that the thread cannot be started
}

void Coordinator::run_body(Worker& worker, const Body& body) {
  worker.record->begin();
  const Status status = stop_on_exception(worker.record->name(), body);
  worker.record->end(!is_normal_end(status));
  end_worker(worker);
}

void Coordinator::end_worker(Worker& worker) {
  const std::lock_guard lock(mutex_);
  worker.ended = true;
  changed_.notify_all();
}

Coordinator::RegisteredThread::RegisteredThread(Coordinator& coordinator, std::string name)
    : coordinator_(coordinator), maybe_worker_(nullptr) {
  auto record = std::make_unique<ThreadRecord>(std::move(name));
  const std::lock_guard lock(coordinator_.mutex_);
  if (coordinator_.joined_) return;
  maybe_worker_ = &coordinator_.workers_.emplace_back();
  maybe_worker_->record = std::move(record);
  maybe_worker_->record->begin();
  maybe_worker_->ended = false;
}

Coordinator::RegisteredThread::~RegisteredThread() {
  if (maybe_worker_ == nullptr) return;
  maybe_worker_->record->end(false);
  coordinator_.end_worker(*maybe_worker_);
}

Status Coordinator::stop_on_exception(const std::string& name, const Body& body) {
  bool has_returned = false;
  Status status = catch_exceptions([&] {
    Status returned = body(token());
    has_returned = true;
    return returned;
  });
  // A status says what is wrong; of an exception, the thread is all that is known.
  if (!has_returned) status = status.with_context(name);
  if (!is_normal_end(status)) request_stop(status);
  return status;
}

// ---- Stop

void Coordinator::request_stop(Status reason) {
  std::stop_source stop(std::nostopstate);
  {
    const std::lock_guard lock(mutex_);
    const bool is_new = known_reasons_.insert(reason.to_string()).second;
    if (stopped_) {
      if (!reason.ok() && is_new)
        log_warn("shutdown already in progress", {{"additional_reason", reason.to_string()}});
      return;
    }
    reason_ = std::move(reason);
    stopped_.store(true, std::memory_order_release);
    stop = stop_;
  }
  stop.request_stop();  // outside the lock, because it runs the stop callbacks of waiting threads
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Coordinator::wait_for_stop(std::chrono::nanoseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return stopped_.load(); });
}

std::stop_token Coordinator::token() const {
  const std::lock_guard lock(mutex_);
  return stop_.get_token();
}

Status Coordinator::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Status Coordinator::clear_stop() {
  const std::lock_guard lock(mutex_);
  if (const std::string running = running_names(); !running.empty())
    return Status(StatusCode::kBusy, "threads are running: " + running);
  for (auto& worker : workers_)
    if (worker.thread.joinable()) worker.thread.join();
  workers_.clear();
  stop_ = std::stop_source();
  joined_ = false;
  reason_ = {};
  known_reasons_.clear();
  stopped_.store(false, std::memory_order_release);
  return {};
}

// ---- End

bool Coordinator::all_joined() const {
  const std::lock_guard lock(mutex_);
  return running_names().empty();
}

std::string Coordinator::running_names() const {
  std::string names;
  for (const auto& worker : workers_)
    if (!worker.ended) names += (names.empty() ? "" : ", ") + worker.record->name();
  return names;
}

void Coordinator::repeat_until_end(std::chrono::nanoseconds interval,
                                   const std::function<void()>& work) const {
  const auto has_ended = [this] { return stopped_ || running_names().empty(); };
  for (bool is_over = false; !is_over;) {
    work();
    std::unique_lock lock(mutex_);
    is_over = changed_.wait_for(lock, interval, has_ended);
  }
}

Status Coordinator::join(std::chrono::nanoseconds grace) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopped_ || running_names().empty(); });
  changed_.wait_for(lock, grace, [this] { return running_names().empty(); });
  const std::string running = running_names();
  joined_ = stopped_;
  for (auto& worker : workers_)
    if (worker.ended && worker.thread.joinable()) worker.thread.join();
  if (running.empty()) return reason_;
  const std::string late = "threads that did not stop within the grace period: " + running;
  if (reason_.ok()) return Status(StatusCode::kTimedOut, late);
  log_warn("threads not joined", {{"reason", late}});
  return reason_;
}

}  // namespace stoker
