// Client: one connection to the daemon's control socket; sends a line, waits for a line.
//
// Threads:  one object per thread.
// Blocking: connect() and call() wait at most `timeout`.
// Errors:   kUnreachable: nobody listens there, or the connection ended before the reply; says what
//           to do. kTimedOut. kPermission: the socket may not be opened by this user. kCorrupt:
//           what answers speaks another protocol. Of call(), besides, whatever the daemon answered.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::control {

class Client {
 public:
  static Result<Client> connect(const std::string& path, std::chrono::milliseconds timeout);

  // The result, a JSON object. `params`: a JSON object, or empty.
  Result<std::string> call(std::string_view method, std::string_view params,
                           std::chrono::milliseconds timeout);
  // A line as it is (without newline), and the line that comes back (without newline).
  Result<std::string> exchange(std::string_view line, std::chrono::milliseconds timeout);

  const std::string& path() const { return path_; }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  Client(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Status send_line(std::string_view line, Deadline deadline);
  Result<std::string> read_line(Deadline deadline);
  Status wait_for(short events, Deadline deadline) const;

  UniqueFd fd_;
  std::string path_;
  std::string unread_;  // of the next line
  uint64_t next_id_ = 1;
};

}  // namespace stoker::control
