#include "daemon/group/closed_listeners.h"

#include <dirent.h>
#include <linux/filter.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <mutex>
#include <string_view>

namespace stoker::group {
namespace {

std::mutex opening;  // so that each thread finds its own sockets

// Empty: it is no socket that listens on an address.
std::string listening_address(int fd) {
  int is_listening = 0;
  socklen_t size = sizeof is_listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || is_listening == 0)
    return {};
  sockaddr_storage address{};
  size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

}  // namespace

std::vector<ClosedListeners::Listener> ClosedListeners::list(const std::string& address) {
  std::vector<Listener> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (directory == nullptr) return found;
  while (const dirent* const entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    struct stat info {};
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec == std::errc() &&
        listening_address(fd) == address && ::fstat(fd, &info) == 0)
      found.push_back({.fd = fd, .inode = info.st_ino});
  }
  return found;
}

ClosedListeners ClosedListeners::open(const std::string& address,
                                      const std::function<void()>& open) {
  const std::lock_guard lock(opening);
  const std::vector<Listener> before = list(address);
  open();
  ClosedListeners made;
  for (const Listener& listener : list(address))
    if (std::ranges::find(before, listener) == before.end()) made.listeners_.push_back(listener);
  return made;
}

size_t ClosedListeners::close() const {
  sock_filter drop{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};  // bytes to keep: none
  const sock_fprog program{.len = 1, .filter = &drop};
  return static_cast<size_t>(std::ranges::count_if(listeners_, [&](const Listener& listener) {
    struct stat info {};
    return ::fstat(listener.fd, &info) == 0 && info.st_ino == listener.inode &&
           ::setsockopt(listener.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
  }));
}

}  // namespace stoker::group
