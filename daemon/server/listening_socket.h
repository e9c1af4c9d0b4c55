// ListeningSocket: creates and removes the file of a socket, by default the control socket.
//
// A socket on which a process listens, responsive or not, is never replaced. Otherwise it belongs
// to a crashed daemon and is replaced. A file that is not a socket is never replaced.
//
// The socket is bound in ".NAME.new", a directory next to it that only this user can enter, and moved
// to its name when it has its mode and accepts connections. A flock on that directory makes daemons
// that start at the same time wait for each other. On a file system without such locks (NFS), the
// last of them can replace the socket of another one.
//
// Threads:   one.
// Blocking:  open() and link_socket() at most twice `probe_timeout` for a process that listens
//            without answering; open() also 5 s for another daemon that is starting.
// Ownership: owns the descriptor and the file; the destructor removes the file unless it has been
//            replaced by another one. Remove it before the descriptor is closed.
// Errors:    kInvalidArgument: a process listens on the path; names its run directory and pid, if
//            it reports them. kAlreadyExists: the path is in use by a file that is not a socket.
//            kBusy: another daemon is starting there. kNotFound, kPermission, kIoError; each names
//            the path.
// Crash:     the file, or the directory, remains; the next daemon replaces it.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <optional>
#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/control/socket_path.h"

namespace stoker::server {

// Time that a process on an existing socket has to accept a connection, and to answer `hello`.
inline constexpr std::chrono::milliseconds kProbeTimeout{2000};

// What error messages say of it.
struct SocketPurpose {
  std::string name = "control socket";
  std::string suggestion = "or set control.socket to another path";
};

class ListeningSocket {
 public:
  // The file has mode 0660 from its creation, regardless of the umask: owner and group can connect.
  static Result<ListeningSocket> open(const std::string& path,
                                      std::chrono::milliseconds probe_timeout = kProbeTimeout,
                                      const SocketPurpose& purpose = {});
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
Status link_socket(const std::string& link_path, const std::string& socket_path,
                   std::chrono::milliseconds probe_timeout = kProbeTimeout);
void unlink_socket(const std::string& link_path, const std::string& socket_path);

}  // namespace stoker::server
