// ListeningSocket: creates and removes the control socket file.
//
// The caller holds run/LOCK, so an existing socket belongs to a crashed daemon and is replaced. A
// file that is not a socket is never replaced.
//
// Threads:   one.
// Ownership: owns the descriptor and the file; the destructor removes the file unless it has been
//            replaced by another one.
// Errors:    kAlreadyExists: the path is in use by a file that is not a socket. kNotFound,
//            kPermission, kInvalidArgument, kIoError; each names the path.
// Crash:     the file remains; the next daemon replaces it.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/control/socket_path.h"

namespace stoker::server {

class ListeningSocket {
 public:
  // The file has mode 0660 from its creation, regardless of the umask: owner and group can connect.
  static Result<ListeningSocket> open(const std::string& path);
  ListeningSocket(ListeningSocket&&) = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket() { remove(); }

  UniqueFd take_descriptor() { return std::move(fd_); }
  void remove();

 private:
  ListeningSocket(UniqueFd fd, control::SocketAddress address, struct stat created)
      : fd_(std::move(fd)), maybe_address_(std::move(address)), created_(created) {}

  UniqueFd fd_;
  std::optional<control::SocketAddress> maybe_address_;
  struct stat created_;
};

// Creates the symlink `link_path` to `socket_path`, so that a client that knows only the run
// directory finds a socket elsewhere. Replaces only an old symlink or the socket of a crashed
// daemon.
Status link_socket(const std::string& link_path, const std::string& socket_path);
void unlink_socket(const std::string& link_path, const std::string& socket_path);

}  // namespace stoker::server
