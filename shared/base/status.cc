#include "shared/base/status.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace stoker {
namespace {

StatusCode status_code_from_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return StatusCode::kNoSpace;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermission;
    case EAGAIN:
    case EBUSY:
      return StatusCode::kBusy;
    case ETIMEDOUT:
      return StatusCode::kTimedOut;
    case ENOMEM:
      return StatusCode::kOutOfMemory;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return StatusCode::kUnreachable;
    default:
      return StatusCode::kIoError;
  }
}

}  // namespace

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kAlreadyExists:
      return "already exists";
    case StatusCode::kTimedOut:
      return "timed out";
    case StatusCode::kClosed:
      return "closed";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kCorrupt:
      return "corrupt";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kIoError:
      return "I/O error";
    case StatusCode::kNoSpace:
      return "no space";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kPermission:
      return "not permitted";
    case StatusCode::kOutOfMemory:
      return "out of memory";
    case StatusCode::kDeviceLost:
      return "device lost";
    case StatusCode::kUnreachable:
      return "unreachable";
    case StatusCode::kPeerLost:
      return "peer lost";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status Status::from_errno(int error, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(error);
  if (error == EMFILE) message += "; raise the limit (ulimit -n, LimitNOFILE= of a service)";
  return Status(status_code_from_errno(error), std::move(message));
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(stoker::to_string(code_)) + ": " + message_;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_, cause_);
}

ExitCode exit_code_for(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
    case StatusCode::kCancelled:
      return ExitCode::kSuccess;
    case StatusCode::kInvalidArgument:
    case StatusCode::kMismatch:
    case StatusCode::kNotFound:
    case StatusCode::kPermission:  // of a path in the configuration, or of feed.sandbox
      return ExitCode::kConfiguration;
    case StatusCode::kCorrupt:
      return ExitCode::kDataError;
    case StatusCode::kUnreachable:
      return ExitCode::kUnavailable;
    case StatusCode::kOutOfMemory:
      return ExitCode::kOutOfMemory;
    case StatusCode::kDeviceLost:
      return ExitCode::kDeviceLost;
    case StatusCode::kPeerLost:
      return ExitCode::kCollectiveTimedOut;
    case StatusCode::kBusy:
    case StatusCode::kTimedOut:  // of another process or a peer, as the next
    case StatusCode::kClosed:
      return ExitCode::kLocked;
    case StatusCode::kIoError:
    case StatusCode::kNoSpace:
    case StatusCode::kAlreadyExists:
      return ExitCode::kIoError;
    case StatusCode::kInternal:
      return ExitCode::kInternal;
  }
  return ExitCode::kInternal;
}

}  // namespace stoker
