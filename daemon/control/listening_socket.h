// ListeningSocket: the control socket's file, made and removed.
//
// The caller holds run/LOCK, so a socket that is there already belongs to a dead daemon and is
// replaced. What is not a socket is somebody's and is refused.
//
// Threads: one.
// Owner:   owns the descriptor and the file; the destructor removes the file unless it is no longer
//          the one made here.
// Errors:  kAlreadyExists: something that is no socket is in the way. kNotFound, kPermission,
//          kInvalidArgument, kIoError; each names the path.
// Crash:   the file stays behind; the next daemon replaces it.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/control/socket_path.h"

namespace stoker::control {

class ListeningSocket {
 public:
  // Mode 0660 from the first moment on, whatever the umask: owner and group connect.
  static Result<ListeningSocket> open(const std::string& path);
  ListeningSocket(ListeningSocket&&) = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket() { remove(); }

  UniqueFd take_descriptor() { return std::move(fd_); }
  void remove();

 private:
  ListeningSocket(UniqueFd fd, control::SocketAddress address, struct stat made)
      : fd_(std::move(fd)), maybe_address_(std::move(address)), made_(made) {}

  UniqueFd fd_;
  std::optional<control::SocketAddress> maybe_address_;
  struct stat made_;
};

// Makes `link_path` a symbolic link to `socket_path`, so that a client that knows only the run
// directory finds a socket that lies elsewhere. Replaces an old link and the socket of a dead
// daemon, nothing else.
Status link_socket(const std::string& link_path, const std::string& socket_path);
void unlink_socket(const std::string& link_path, const std::string& socket_path);

}  // namespace stoker::control
