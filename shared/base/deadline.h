// Deadline: the time until which an operation waits.
//
// Threads:  functions of their arguments.
// Blocking: sleep_until() until the deadline or a stop, which wakes it immediately; write_within() for
//           at most its timeout.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "shared/base/status.h"

namespace stoker {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

// False if it was a stop that ended the sleep, or one was requested before.
bool sleep_until(const std::stop_token& stop, Deadline deadline);

// Returns what `write` does, which writes `path`. kTimedOut: the storage does not respond; `write`
// continues on a separate thread, so what it uses must live as long as the process.
Status write_within(std::chrono::milliseconds timeout, const std::string& path,
                    std::function<Status()> write);

}  // namespace stoker
