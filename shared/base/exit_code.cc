#include "shared/base/exit_code.h"

namespace stoker {

ExitCode exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
    case Code::kCancelled:
      return ExitCode::kDone;
    case Code::kInvalidArgument:
    case Code::kMismatch:
    case Code::kNotFound:
    case Code::kPermission:  // of a path that the configuration names, or of feed.sandbox
      return ExitCode::kConfiguration;
    case Code::kCorrupt:
      return ExitCode::kBadData;
    case Code::kUnreachable:
      return ExitCode::kUnreachable;
    case Code::kOutOfMemory:
      return ExitCode::kOutOfMemory;
    case Code::kDeviceLost:
      return ExitCode::kDeviceLost;
    case Code::kBusy:
      return ExitCode::kLocked;
    case Code::kIoError:
    case Code::kNoSpace:
    case Code::kAlreadyExists:
      return ExitCode::kIo;
    case Code::kTimedOut:
    case Code::kClosed:
    case Code::kInternal:
      return ExitCode::kInternal;
  }
  return ExitCode::kInternal;
}

}  // namespace stoker
