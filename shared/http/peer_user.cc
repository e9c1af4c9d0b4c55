#include "shared/http/peer_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "shared/base/file.h"

namespace stoker::http {
namespace {

struct Endpoint {
  uint16_t port = 0;                  // in network byte order
  std::array<uint32_t, 4> address{};  // an IPv4 address is the first
};

Endpoint endpoint_of(const sockaddr_storage& address) {
  Endpoint endpoint;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    endpoint.port = v4.sin_port;
    endpoint.address[0] = v4.sin_addr.s_addr;
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    endpoint.port = v6.sin6_port;
    std::memcpy(endpoint.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
  }
  return endpoint;
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 body;
};
struct Answer {
  nlmsghdr header;
  inet_diag_msg body;
};

// Of the socket that is bound to `own` and connected to `other`.
std::optional<uid_t> owner_of_socket(int family, const Endpoint& own, const Endpoint& other) {
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel.valid()) return std::nullopt;
  Question question{};
  question.header = {.nlmsg_len = sizeof question,
                     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                     .nlmsg_flags = NLM_F_REQUEST,
                     .nlmsg_seq = 1,
                     .nlmsg_pid = 0};
  question.body.sdiag_family = static_cast<uint8_t>(family);
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0u;
  inet_diag_sockid& id = question.body.id;
  id.idiag_sport = own.port;
  id.idiag_dport = other.port;
  std::memcpy(id.idiag_src, own.address.data(), sizeof id.idiag_src);
  std::memcpy(id.idiag_dst, other.address.data(), sizeof id.idiag_dst);
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (::send(kernel.get(), &question, sizeof question, 0) != sizeof question) return std::nullopt;
  // The kernel has answered before send() returns.
  alignas(nlmsghdr) std::array<char, 4096> bytes{};
  const ssize_t received = ::recv(kernel.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  Answer answer{};
  if (received < static_cast<ssize_t>(sizeof answer)) return std::nullopt;
  std::memcpy(&answer, bytes.data(), sizeof answer);
  if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  // A socket that its process has closed has no inode, and the kernel says that it is root's.
  if (answer.body.idiag_inode == 0) return std::nullopt;
  return answer.body.idiag_uid;
}

}  // namespace

std::optional<uid_t> user_of_peer(int fd) {
  sockaddr_storage own{}, other{};
  socklen_t own_bytes = sizeof own, other_bytes = sizeof other;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) return std::nullopt;
  if (own.ss_family == AF_UNIX) {
    ucred user{};
    socklen_t bytes = sizeof user;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &bytes) != 0) return std::nullopt;
    return user.uid;
  }
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
    return std::nullopt;
  if (own.ss_family != AF_INET && own.ss_family != AF_INET6) return std::nullopt;
  return owner_of_socket(own.ss_family, endpoint_of(other), endpoint_of(own));
}

}  // namespace stoker::http
