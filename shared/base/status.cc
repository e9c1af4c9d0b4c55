#include "shared/base/status.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace stoker {
namespace {

Code code_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return Code::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Code::kNoSpace;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermission;
    case EAGAIN:
    case EBUSY:
      return Code::kBusy;
    case ETIMEDOUT:
      return Code::kTimedOut;
    case ENOMEM:
      return Code::kOutOfMemory;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return Code::kUnreachable;
    default:
      return Code::kIoError;
  }
}

}  // namespace

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kTimedOut:
      return "timed out";
    case Code::kClosed:
      return "closed";
    case Code::kCancelled:
      return "cancelled";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kMismatch:
      return "mismatch";
    case Code::kIoError:
      return "I/O error";
    case Code::kNoSpace:
      return "no space";
    case Code::kBusy:
      return "busy";
    case Code::kPermission:
      return "not permitted";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kDeviceLost:
      return "device lost";
    case Code::kUnreachable:
      return "unreachable";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

Status Status::from_errno(int error, std::string_view what) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(error);
  return Status(code_of_errno(error), std::move(message));
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(code_)) + ": " + message_;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + message_);
}

}  // namespace stoker
