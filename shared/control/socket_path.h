// SocketPath: where the control socket is, and how to name it to the kernel.
//
// The kernel takes at most 107 bytes of path. A longer one is reached through a descriptor of its
// directory: /proc/self/fd/N/control.sock, which is short whatever the directory is called.
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

// control.socket as configured: "auto" is control.sock in systemd's RuntimeDirectory where the
// service has one
// (`runtime_directory` is $RUNTIME_DIRECTORY, may be null or a list separated by colons), else in
// the run directory.
std::string resolve_socket_path(const std::string& setting, const std::string& run_dir,
                                const char* runtime_directory);

// A path as the kernel takes it. Valid while this object lives.
class SocketAddress {
 public:
  // kNotFound, kPermission: the directory cannot be opened. kInvalidArgument: the file's own name
  // is too long, or the path holds a NUL.
  static Result<SocketAddress> of(const std::string& path);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return sizeof address_; }
  int directory() const { return directory_.get(); }      // O_PATH
  const std::string& name() const { return name_; }       // of the file in that directory
  std::string text() const { return address_.sun_path; }  // what the kernel is given

 private:
  UniqueFd directory_;
  std::string name_;
  sockaddr_un address_{};
};

}  // namespace stoker::control
