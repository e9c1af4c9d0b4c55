// ClosedListeners: keeps other processes from connecting to sockets on which a library of this one listens, and which
// it does not expose. Each connection would cost this process a descriptor, and Gloo ends the process when there
// is none.
//
// The sockets cannot be closed, because the library polls them. Instead a filter of the kernel (SO_ATTACH_FILTER, which
// needs no privilege) drops whatever arrives for them, so that new connections are not even answered. Connections that
// exist have sockets of their own and are not affected.
//
// Threads:  one at a time for each object. What is between the two lines of open() happens in one thread at a time.
// Blocking: for other threads that open a library's sockets.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace stoker::group {

class ClosedListeners {
 public:
  // Of what `open` opens on the numeric address.
  static ClosedListeners open(const std::string& address, const std::function<void()>& open);

  // From now on nobody can connect. Returns their number.
  size_t close() const;

 private:
  struct Listener {
    int fd = -1;
    ino_t inode = 0;  // so that a later file with this number is not touched

    bool operator==(const Listener&) const = default;
  };
  static std::vector<Listener> list(const std::string& address);

  std::vector<Listener> listeners_;
};

}  // namespace stoker::group
