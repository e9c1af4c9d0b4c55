// listening_sockets(): the TCP sockets on which a process and its descendants listen, as the kernel lists them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace stoker::test {

struct ListeningSocket {
  std::string address;  // numeric, of IPv4 or IPv6
  int port = 0;
};

// Of IPv4 and IPv6. Without those of a process whose descriptors this user may not list.
std::vector<ListeningSocket> listening_sockets(pid_t pid);

}  // namespace stoker::test
