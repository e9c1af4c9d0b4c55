// wait for descriptors: the interval at which waits check for a stop.
//
// Threads: any.
#pragma once

#include <poll.h>

#include <chrono>

namespace stoker::data::stream {

inline constexpr std::chrono::milliseconds kStopInterval{100};

// Waits until the descriptor can be read or has ended; false after `timeout`. A descriptor of -1 is
// never readable.
inline bool is_readable(int fd, std::chrono::milliseconds timeout) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace stoker::data::stream
