// IdleConnections: what a local user opens to the ports of others, and sends nothing.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared/base/file.h"

namespace stoker::test {

inline sockaddr_in loopback_port(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

class IdleConnections {
 public:
  // Does not wait until they are established. The process needs as many descriptors.
  void open(int port, size_t number) {
    const sockaddr_in address = loopback_port(port);
    for (size_t i = 0; i < number; ++i) {
      UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
      connections_.push_back(std::move(fd));
    }
  }
  size_t size() const { return connections_.size(); }
  // At present: on the loopback interface, connect() returns after the other side's answer.
  size_t num_established() const {
    return static_cast<size_t>(std::ranges::count_if(connections_, [](const UniqueFd& fd) {
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      return ::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    }));
  }
  // Through the first one. What send() returns.
  ssize_t send_byte(char byte) const {
    return ::send(connections_.front().get(), &byte, 1, MSG_NOSIGNAL);
  }

 private:
  std::vector<UniqueFd> connections_;
};

}  // namespace stoker::test
