// Deadline: the time until which an operation waits.
//
// Threads:  functions of their arguments.
// Blocking: sleep_until() until the deadline or a stop, which wakes it immediately.
#pragma once

#include <chrono>
#include <stop_token>

namespace stoker {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

// False if it was a stop that ended the sleep, or one was requested before.
bool sleep_until(const std::stop_token& stop, Deadline deadline);

}  // namespace stoker
