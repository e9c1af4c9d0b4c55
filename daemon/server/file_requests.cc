#include "daemon/server/file_requests.h"

#include <utility>

#include "shared/base/log.h"
#include "shared/control/grammar.h"

namespace stoker::server {
namespace {

Status shutting_down() { return Status(StatusCode::kClosed, "the daemon is shutting down"); }

}  // namespace

FileRequests::FileRequests(Execute execute, size_t capacity)
    : execute_(std::move(execute)), capacity_(capacity) {
  if (!execute_) return;
  executor_.emplace(
      "control files", capacity, [this](const Waiting& next, const std::stop_token& stop) {
        const Status replied = catch_exceptions([&]() -> Status {
          next.done(this->execute(next.request, stop));
          return {};
        });
        if (!replied.ok())
          log_warn("control command",
                   {{"command", control::to_words(next.request)}, {"result", replied.to_string()}});
      });
}

FileRequests::~FileRequests() {
  if (!executor_) return;
  for (const Waiting& one : executor_->close()) one.done(shutting_down());
}

void FileRequests::post(control::FileRequest request, Done done) {
  if (!executor_)
    return done(Status(StatusCode::kPermission, "this stokerd has no access to files of the run"));
  switch (executor_->post({.request = std::move(request), .done = done})) {
    case PostResult::kPosted:
      return;
    case PostResult::kFull:
      return done(Status(StatusCode::kBusy, std::to_string(capacity_) +
                                                " requests about files are waiting; retry later"));
    case PostResult::kClosed:
      return done(shutting_down());
  }
}

// An exception must not leave this request without a reply.
Result<std::string> FileRequests::execute(const control::FileRequest& request,
                                          const std::stop_token& stop) const {
  std::string reply;
  STOKER_RETURN_IF_ERROR(catch_exceptions([&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(reply, execute_(request, stop));
    return {};
  }));
  return reply;
}

}  // namespace stoker::server
