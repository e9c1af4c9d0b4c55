// Client: one connection to the daemon's control socket; sends a line and waits for the reply.
//
// Threads:  one object per thread.
// Blocking: connect() and call() wait up to `timeout`.
// Errors:   kUnreachable: no daemon is listening, or the connection ended before the reply; the
//           message says what to do. kTimedOut. kPermission: this user may not open the socket.
//           kCorrupt: the peer speaks another protocol. call() also returns the error that the
//           daemon replied with.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/control/protocol.h"

namespace stoker::control {

class Client {
 public:
  static Result<Client> connect(const std::string& path, std::chrono::milliseconds timeout);

  // Returns the result, a JSON object. `params`: a JSON object, or empty.
  Result<std::string> call(std::string_view method, std::string_view params,
                           std::chrono::milliseconds timeout);
  // The same on a connection that is subscribed: passes the notifications that come before the reply.
  Result<std::string> call(std::string_view method, std::string_view params,
                           std::chrono::milliseconds timeout,
                           const std::function<void(const Notification&)>& on_notification);
  // Sends `line` unchanged and returns the reply line, both without the newline.
  Result<std::string> exchange(std::string_view line, std::chrono::milliseconds timeout);

  // The next line, for notifications; without the newline.
  Result<std::string> receive(std::chrono::milliseconds timeout) {
    return read_line(std::chrono::steady_clock::now() + timeout);
  }

  const std::string& path() const { return path_; }
  // The process that listens on the socket; 0 if it is not visible from here.
  pid_t peer_pid() const;
  // Its user when it started to listen; -1 if unknown.
  uid_t peer_uid() const;

 private:
  Client(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  Status send_line(std::string_view line, Deadline deadline);
  Result<std::string> read_line(Deadline deadline);
  Status wait_for(short events, Deadline deadline) const;

  UniqueFd fd_;
  std::string path_;
  std::string unread_;  // bytes of the next line
  uint64_t next_id_ = 1;
};

}  // namespace stoker::control
