#include "daemon/server/listening_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace stoker::server {
namespace {

constexpr mode_t kMode = 0660;
constexpr int kBacklog = 64;

Status path_in_use(const std::string& path) {
  return Status(StatusCode::kAlreadyExists,
                path +
                    ": path of the control socket is in use by another file; move it, or set "
                    "control.socket to another path");
}

// Removes what a crashed daemon left at `path`.
Status remove_stale_socket(const control::SocketAddress& address, const std::string& path) {
  struct stat found {};
  if (::fstatat(address.directory(), address.name().c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return {};
    return Status::from_errno(errno, "stat " + path);
  }
  // A crashed daemon can also leave the symlink of link_socket(), which points to a socket or to
  // nothing.
  bool is_stale = S_ISSOCK(found.st_mode);
  if (S_ISLNK(found.st_mode)) {
    struct stat target {};
    is_stale = ::fstatat(address.directory(), address.name().c_str(), &target, 0) == 0
                   ? S_ISSOCK(target.st_mode)
                   : errno == ENOENT;
  }
  if (!is_stale) return path_in_use(path);
  if (::unlinkat(address.directory(), address.name().c_str(), 0) != 0 && errno != ENOENT)
    return Status::from_errno(errno, "remove the old control socket " + path);
  return {};
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Result<ListeningSocket> ListeningSocket::open(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(auto address, control::SocketAddress::of(path));
  STOKER_RETURN_IF_ERROR(remove_stale_socket(address, path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno(errno, "create the control socket");
  // Linux creates the file with the mode of the socket minus the umask, so it is never accessible
  // to other users, not even briefly.
  if (::fchmod(fd.get(), kMode) != 0 || ::bind(fd.get(), address.get(), address.length()) != 0)
    return Status::from_errno(errno, "bind the control socket " + path);
  struct stat created {};
  if (::fstatat(address.directory(), address.name().c_str(), &created, AT_SYMLINK_NOFOLLOW) != 0)
    return Status::from_errno(errno, "stat the control socket " + path);
  ListeningSocket socket(std::move(fd), std::move(address), created);
  const auto& bound = *socket.maybe_address_;
  if (::fchmodat(bound.directory(), bound.name().c_str(), kMode, 0) != 0)
    return Status::from_errno(errno, "set the mode of the control socket " + path);
  if (::listen(socket.fd_.get(), kBacklog) != 0)
    return Status::from_errno(errno, "listen on the control socket " + path);
  return socket;
}

void ListeningSocket::remove() {
  if (!maybe_address_) return;
  struct stat found {};
  const auto& address = *maybe_address_;
  if (address.directory() >= 0 &&
      ::fstatat(address.directory(), address.name().c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 &&
      same_file(found, created_))
    (void)::unlinkat(address.directory(), address.name().c_str(), 0);
  maybe_address_.reset();
}

Status link_socket(const std::string& link_path, const std::string& socket_path) {
  std::error_code error;
  const std::string target = std::filesystem::absolute(socket_path, error).string();
  if (error) return Status::from_errno(error.value(), "resolve " + socket_path);
  // The same path in another spelling, or an existing symlink.
  struct stat at_link {};
  struct stat at_target {};
  if (::stat(link_path.c_str(), &at_link) == 0 && ::stat(target.c_str(), &at_target) == 0 &&
      same_file(at_link, at_target))
    return {};
  STOKER_ASSIGN_OR_RETURN(const auto address, control::SocketAddress::of(link_path));
  STOKER_RETURN_IF_ERROR(remove_stale_socket(address, link_path));
  if (::symlinkat(target.c_str(), address.directory(), address.name().c_str()) != 0)
    return Status::from_errno(errno,
                              "create symlink " + link_path + " to the control socket " + target);
  return {};
}

void unlink_socket(const std::string& link_path, const std::string& socket_path) {
  std::error_code error;
  const auto target = std::filesystem::absolute(socket_path, error);
  if (!error && std::filesystem::read_symlink(link_path, error) == target)
    (void)std::filesystem::remove(link_path, error);
}

}  // namespace stoker::server
