#include "daemon/group/socket_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <net/if.h>

namespace stoker::group {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPoll{50};            // until a stop or the deadline is checked again
constexpr milliseconds kRetryInterval{100};  // between two attempts to connect
constexpr milliseconds kAttempt{5000};       // for one attempt: the host drops packets
constexpr int kBacklog = 4096;
constexpr uint16_t kAnyPort = 9;  // connecting a datagram socket sends nothing; any port will do

// An address of the system's interface, of IPv4 or IPv6.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

Address copy_address(const sockaddr* from, size_t length) {
  Address address;
  address.length = static_cast<socklen_t>(std::min(length, sizeof address.storage));
  std::memcpy(&address.storage, from, address.length);
  return address;
}

std::string numeric(const Address& address) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address.get(), address.length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "?";
  return text.data();
}

uint16_t port_of(const Address& address) {
  if (address.family() == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

// The message of an unresolved name is for wait_for_listener(), which retries.
Result<std::vector<Address>> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return Status(StatusCode::kNotFound, "cannot resolve host " + host + ": " +
                                             ::gai_strerror(error) + "; check the name");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    addresses.push_back(copy_address(each->ai_addr, each->ai_addrlen));
  return addresses;
}

Status bind_error(const std::string& address, uint16_t port, int error) {
  if (error == EADDRINUSE)
    return Status(StatusCode::kBusy, "port " + std::to_string(port) + " of " + address +
                                         " is in use by another process");
  if (error == EADDRNOTAVAIL)
    return Status(StatusCode::kInvalidArgument,
                  address + " is not an address of this host (" + host_name() + ")");
  return Status::from_errno(error, "listen on " + join_host_and_port(address, port));
}

Result<ListeningPort> listen_on_address(const Address& address) {
  const std::string text = numeric(address);
  const uint16_t port = port_of(address);
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno(errno, "create a socket for " + text);
  // So that a restarted rank can listen while connections of its predecessor are being closed.
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length) != 0) return bind_error(text, port, errno);
  if (::listen(fd.get(), kBacklog) != 0) return bind_error(text, port, errno);
  Address bound;
  bound.length = sizeof bound.storage;
  if (::getsockname(fd.get(), bound.get(), &bound.length) != 0)
    return Status::from_errno(errno, "read the port of " + text);
  return ListeningPort{.fd = std::move(fd), .address = text, .port = port_of(bound)};
}

Status stopped() { return Status(StatusCode::kCancelled, "stopped while the group was starting"); }

// A socket that connects to a port of this host on which no process listens can get that port
// itself, and is then connected to itself.
bool is_connected_to_itself(int fd) {
  Address own;
  Address peer;
  own.length = peer.length = sizeof own.storage;
  return ::getsockname(fd, own.get(), &own.length) == 0 &&
         ::getpeername(fd, peer.get(), &peer.length) == 0 && port_of(own) == port_of(peer) &&
         numeric(own) == numeric(peer);
}

// One attempt. kCancelled, or the reason why the connection failed.
Result<UniqueFd> try_connect(const Address& address, Deadline deadline,
                             const std::stop_token& stop) {
  const std::string where = join_host_and_port(numeric(address), port_of(address));
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno(errno, "create a socket for " + where);
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)
    return Status::from_errno(errno, where);
  do {
    if (stop.stop_requested()) return stopped();
    pollfd connected{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&connected, 1, static_cast<int>(kPoll.count())) <= 0) continue;
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error == 0 && is_connected_to_itself(fd.get())) error = ECONNREFUSED;
    if (error == 0) return fd;
    return Status::from_errno(error, where);
  } while (std::chrono::steady_clock::now() < deadline);
  return Status(StatusCode::kTimedOut, where + ": no response");
}

struct Interface {
  std::string name;
  Address address;
};

std::vector<Interface> list_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family == AF_INET)
      interfaces.push_back({each->ifa_name, copy_address(each->ifa_addr, sizeof(sockaddr_in))});
    if (family == AF_INET6)
      interfaces.push_back({each->ifa_name, copy_address(each->ifa_addr, sizeof(sockaddr_in6))});
  }
  // IPv4 first: an interface often has only a link-local address of IPv6.
  std::ranges::stable_sort(interfaces, {},
                           [](const Interface& each) { return each.address.family() == AF_INET6; });
  return interfaces;
}

Result<std::string> address_of_interface(const std::string& interface) {
  std::string names;
  for (const Interface& each : list_interfaces()) {
    const std::string address = numeric(each.address);
    if (each.name == interface || address == interface) return address;
    if ((", " + names + ",").find(" " + each.name + ",") == std::string::npos)
      names += (names.empty() ? "" : ", ") + each.name;
  }
  return Status(StatusCode::kInvalidArgument, "network interface '" + interface +
                                                  "' does not exist on " + host_name() +
                                                  " or has no address; it has " + names);
}

}  // namespace

Result<ListeningPort> listen_on(const std::string& host, uint16_t port) {
  STOKER_ASSIGN_OR_RETURN(const auto addresses, resolve(host, port));
  Result<ListeningPort> listening = Status(StatusCode::kNotFound, host + " has no address");
  for (const Address& address : addresses) {
    listening = listen_on_address(address);
    // A name can have addresses of other hosts, but a port in use is not replaced by another one.
    if (listening.ok() || listening.status().code() == StatusCode::kBusy) break;
  }
  return listening;
}

Result<std::string> wait_for_listener(const std::string& host, uint16_t port, Deadline deadline,
                                      const std::stop_token& stop,
                                      const std::function<Status(const Status& last)>& on_retry) {
  Status last(StatusCode::kNotFound, host + " has no address");
  do {
    if (stop.stop_requested()) return stopped();
    const auto addresses = resolve(host, port);
    if (!addresses.ok()) last = addresses.status();
    for (size_t i = 0; addresses.ok() && i < addresses->size(); ++i) {
      const Deadline attempt =
          std::min<Deadline>(deadline, std::chrono::steady_clock::now() + kAttempt);
      last = try_connect((*addresses)[i], attempt, stop).status();
      if (last.ok()) return numeric((*addresses)[i]);
      if (last.code() == StatusCode::kCancelled) return last;
    }
    if (on_retry) STOKER_RETURN_IF_ERROR(on_retry(last));
    ::poll(nullptr, 0, static_cast<int>(kRetryInterval.count()));
  } while (std::chrono::steady_clock::now() < deadline);
  return Status(StatusCode::kTimedOut, last.message());
}

Result<UniqueFd> connect_to(const std::string& address, uint16_t port, Deadline deadline) {
  STOKER_ASSIGN_OR_RETURN(const auto addresses, resolve(address, port));
  return try_connect(addresses.front(), deadline, {});
}

Result<std::string> own_address(const std::string& interface, const std::string& peer) {
  if (interface != "auto") return address_of_interface(interface);
  STOKER_ASSIGN_OR_RETURN(const auto addresses, resolve(peer, kAnyPort));
  const UniqueFd fd(::socket(addresses.front().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Address own;
  own.length = sizeof own.storage;
  if (!fd.valid() || ::connect(fd.get(), addresses.front().get(), addresses.front().length) != 0 ||
      ::getsockname(fd.get(), own.get(), &own.length) != 0)
    return Status::from_errno(errno, "find the route to " + peer);
  return numeric(own);
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string join_host_and_port(const std::string& host, uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

}  // namespace stoker::group
