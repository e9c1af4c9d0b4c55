// socket_path: the path of the control socket and its kernel address.
//
// The kernel accepts a path of at most 107 bytes. A longer one is reached through a file descriptor
// of its directory: /proc/self/fd/N/control.sock is short regardless of the directory name.
//
// Threads: values; functions of their arguments.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::control {

inline constexpr size_t kMaxSocketPathBytes = sizeof(sockaddr_un{}.sun_path) - 1;  // 107

// Resolves control.socket. "auto" is control.sock in systemd's RuntimeDirectory if the service has
// one, otherwise in the run directory. `runtime_directory` is $RUNTIME_DIRECTORY; it can be null or
// a colon-separated list.
std::string resolve_socket_path(const std::string& setting, const std::string& run_dir,
                                const char* runtime_directory);

// A socket path in a form that the kernel accepts. Valid during the lifetime of this object.
class SocketAddress {
 public:
  // kNotFound, kPermission: the directory cannot be opened. kInvalidArgument: the file name is too
  // long, or the path contains a NUL.
  static Result<SocketAddress> of(const std::string& path);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return sizeof address_; }
  int directory() const { return directory_.get(); }      // O_PATH
  const std::string& name() const { return name_; }       // file name in that directory
  std::string text() const { return address_.sun_path; }  // the path that the kernel receives

 private:
  UniqueFd directory_;
  std::string name_;
  sockaddr_un address_{};
};

}  // namespace stoker::control
