// Status and Result: errors as return values.
//
// A function that can fail for external reasons (files, peers, input, devices) returns Status or
// Result<T>. The message is one line that a user can act on: what happened, where (path, line,
// offset), and what to do. A broken invariant of the program is not a Status; it asserts.
//
// Threads:  values; no shared state.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace stoker {

// Closed set: each code is one that callers distinguish. All other information belongs in the
// message. The numbers of the codes up to kInternal are part of the ring's layout
// (shared/ring/ring_layout.h); new codes are added at the end.
enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong: configuration, command, flag
  kNotFound,         // a named thing does not exist
  kAlreadyExists,    // would overwrite something that exists
  kTimedOut,         // the wait timed out; can be retried
  kClosed,           // the other side has closed; must not be retried
  kCancelled,        // stopped on request
  kCorrupt,          // the bytes are not what was written, or not allowed by the format
  kMismatch,         // valid, but for another model, dataset or version
  kIoError,          // a read or write failed
  kNoSpace,          // disk, quota or shared memory is full
  kBusy,             // held by another process, or a limit is reached; can succeed later
  kPermission,       // forbidden by the system or by stoker's own rules
  kOutOfMemory,      // host or device memory
  kDeviceLost,       // the accelerator is no longer usable by this process
  kUnreachable,      // no peer responds
  kInternal,         // a bug, or an unexpected exception
  kPeerLost,         // another rank of the group exited, hangs, never joined or is unreachable
};
inline constexpr StatusCode kLastStatusCode = StatusCode::kPeerLost;

std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  // `cause`: of kPeerLost, why the other process has failed, if it has reported that.
  Status(StatusCode code, std::string message, StatusCode cause = StatusCode::kOk)
      : code_(code), cause_(cause), message_(std::move(message)) {}

  // Status of errno `error`, with the matching code (ENOSPC and EDQUOT are kNoSpace, ENOENT is
  // kNotFound, …): "open runs/demo/LOCK: Permission denied".
  static Status from_errno(int error, std::string_view what);

  bool ok() const { return code_ == StatusCode::kOk; }
  explicit operator bool() const { return ok(); }
  StatusCode code() const { return code_; }
  StatusCode cause() const { return cause_; }  // kOk: unknown
  const std::string& message() const { return message_; }
  std::string to_string() const;  // "no space: write model.safetensors: …"; "ok"

  // The same error with context: "context: message". No effect on an ok status.
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  StatusCode cause_ = StatusCode::kOk;
  std::string message_;
};

// Either a value or a Status that is not ok.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: `return value;` is the point
  Result(Status status) : status_(std::move(status)) {  // NOLINT: `return status;` is the point
    assert(!status_.ok() && "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  // By value, so that `for (auto& x : *list())` does not iterate over a destroyed object.
  T operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

 private:
  T& checked() {
    assert(value_.has_value() && "read of a Result that holds an error");
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

// Exit codes of all programs. This is the authoritative list; systemd units, docs and tests refer
// to it.
enum class ExitCode : int {
  kSuccess = 0,       // finished, or stopped on request
  kUsage = 64,        // invalid command line
  kDataError = 65,    // no valid checkpoint, corrupt data, or a nonfinite loss
  kUnavailable = 69,  // no running daemon responds
  kInternal = 70,
  kOutOfMemory = 71,
  kDeviceLost = 72,
  kCollectiveTimedOut = 73,  // another rank of the group is lost; all ranks must be restarted
  kIoError = 74,
  kLocked = 75,         // another process holds a lock or does not answer, or a limit; try later
  kSandbox = 77,        // stoker-feed only, read by stokerd: its seccomp filter is not permitted
  kConfiguration = 78,  // the configuration, or something it refers to, is wrong
  kNoProgress = 93,     // three restarts without progress: another restart will not help
  kForcedExit = 143,    // second SIGTERM: exited immediately
};

// The default exit code for a Status.
ExitCode exit_code_for(const Status& status);

}  // namespace stoker

#define STOKER_CONCAT_INNER(a, b) a##b
#define STOKER_CONCAT(a, b) STOKER_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expression` (a Status) is not ok.
#define STOKER_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                            \
    if (::stoker::Status stoker_status = (expression); !stoker_status.ok()) return stoker_status; \
  } while (false)

// `STOKER_ASSIGN_OR_RETURN(auto file, open(path));` unwraps a Result, or returns its Status.
#define STOKER_ASSIGN_OR_RETURN(declaration, expression) \
  STOKER_ASSIGN_OR_RETURN_INNER(STOKER_CONCAT(stoker_result_, __LINE__), declaration, expression)
#define STOKER_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                          \
  if (!result.ok()) return result.status();                            \
  declaration = *std::move(result)
