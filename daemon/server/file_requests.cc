#include "daemon/server/file_requests.h"

#include <utility>

namespace stoker::server {

FileRequests::FileRequests(Execute execute, size_t capacity)
    : execute_(std::move(execute)), capacity_(capacity) {
  if (execute_)
    thread_.start("control files", [this](const std::stop_token& stop) { return run(stop); });
}

FileRequests::~FileRequests() {
  thread_.request_stop();
  std::deque<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (Waiting& one : waiting) one.done(Status(StatusCode::kClosed, "the daemon is shutting down"));
}

void FileRequests::post(control::FileRequest request, Done done) {
  if (!execute_)
    return done(Status(StatusCode::kPermission, "this stokerd has no access to files of the run"));
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() < capacity_) {
      waiting_.push_back({std::move(request), std::move(done)});
      posted_.notify_one();
      return;
    }
  }
  done(Status(StatusCode::kBusy,
              std::to_string(capacity_) + " requests about files are waiting; retry later"));
}

// An exception must not leave this request, and those behind it, without a reply.
Result<std::string> FileRequests::execute(const control::FileRequest& request,
                                          const std::stop_token& stop) const {
  std::string reply;
  STOKER_RETURN_IF_ERROR(catch_exceptions([&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(reply, execute_(request, stop));
    return {};
  }));
  return reply;
}

Status FileRequests::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (posted_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next.done(execute(next.request, stop));
    lock.lock();
    if (stop.stop_requested()) break;
  }
  return {};
}

}  // namespace stoker::server
