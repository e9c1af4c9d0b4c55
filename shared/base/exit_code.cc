#include "shared/base/exit_code.h"

namespace stoker {

ExitCode exit_code_for(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
    case StatusCode::kCancelled:
      return ExitCode::kSuccess;
    case StatusCode::kInvalidArgument:
    case StatusCode::kMismatch:
    case StatusCode::kNotFound:
    case StatusCode::kPermission:  // of a path that the configuration names, or of feed.sandbox
      return ExitCode::kConfiguration;
    case StatusCode::kCorrupt:
      return ExitCode::kDataError;
    case StatusCode::kUnreachable:
      return ExitCode::kUnavailable;
    case StatusCode::kOutOfMemory:
      return ExitCode::kOutOfMemory;
    case StatusCode::kDeviceLost:
      return ExitCode::kDeviceLost;
    case StatusCode::kBusy:
      return ExitCode::kLocked;
    case StatusCode::kIoError:
    case StatusCode::kNoSpace:
    case StatusCode::kAlreadyExists:
      return ExitCode::kIoError;
    case StatusCode::kTimedOut:
    case StatusCode::kClosed:
    case StatusCode::kInternal:
      return ExitCode::kInternal;
  }
  return ExitCode::kInternal;
}

}  // namespace stoker
