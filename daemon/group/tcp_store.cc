#include "daemon/group/tcp_store.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "daemon/group/authenticated_store.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// An address of IPv4 in the form that it has in a socket of IPv6, which TCPStore prefers.
in6_addr to_ipv6(const in_addr& ipv4) {
  in6_addr address{};
  address.s6_addr[10] = address.s6_addr[11] = 0xff;
  std::memcpy(&address.s6_addr[12], &ipv4, sizeof ipv4);
  return address;
}

// A numeric address and a port.
class Endpoint {
 public:
  Endpoint(const std::string& address, uint16_t port) : port_(port) {
    in_addr ipv4{};
    const std::string host = address.substr(0, address.find('%'));  // fe80::1%eth0
    if (::inet_pton(AF_INET, host.c_str(), &ipv4) == 1)
      address_ = to_ipv6(ipv4);
    else
      (void)::inet_pton(AF_INET6, host.c_str(), &address_);
  }
  bool is_peer_of(int fd) const {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return false;
    if (peer.ss_family == AF_INET) {
      const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(peer);
      return is(to_ipv6(ipv4.sin_addr), ntohs(ipv4.sin_port));
    }
    if (peer.ss_family != AF_INET6) return false;
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(peer);
    return is(ipv6.sin6_addr, ntohs(ipv6.sin6_port));
  }

 private:
  bool is(const in6_addr& address, uint16_t port) const {
    return port == port_ && std::memcmp(&address, &address_, sizeof address) == 0;
  }

  in6_addr address_{};
  uint16_t port_;
};

// The sockets of this process that are connected to `server`. TCPStore does not expose its own.
std::vector<int> sockets_connected_to(const Endpoint& server) {
  std::vector<int> sockets;
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return sockets;
  while (const dirent* const entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), fd);
    if (parsed.ec == std::errc() && server.is_peer_of(fd)) sockets.push_back(fd);
  }
  ::closedir(directory);
  return sockets;
}

// TCPStore waits for most replies without a limit; a timeout of the socket makes it throw. It does
// not apply to nonblocking sockets, as those of Gloo are.
void limit_replies(const Endpoint& server, milliseconds timeout) {
  const timeval limit{.tv_sec = timeout.count() / 1000,
                      .tv_usec = static_cast<suseconds_t>(timeout.count() % 1000 * 1000)};
  for (const int fd : sockets_connected_to(server)) {
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
}

// Ends the first exchange of TCPStore's constructor, which waits without a limit, if `server` does
// not reply, as a stopped process or another program.
class FirstReplyLimit {
 public:
  FirstReplyLimit(const Endpoint& server, milliseconds timeout)
      : thread_([server, timeout](const std::stop_token& stop) {
          // Again after the first time, because TCPStore connects again.
          while (sleep_until(stop, std::chrono::steady_clock::now() + timeout))
            for (const int fd : sockets_connected_to(server)) (void)::shutdown(fd, SHUT_RDWR);
        }) {}

 private:
  std::jthread thread_;
};

// LibTorch logs a stack trace for each lost connection, which is a normal error here.
void disable_torch_warnings() {
  if (::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

// An authenticated store for LibTorch.
class C10dStore final : public c10d::Store {
 public:
  C10dStore(const std::string& address, uint16_t port, const std::string& secret,
            milliseconds timeout)
      : c10d::Store(timeout),
        address_(address),
        port_(port),
        secret_(secret),
        reply_timeout_(timeout),
        client_(take(StoreClient::connect(address, port, secret, timeout))) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<C10dStore>(address_, port_, secret_, reply_timeout_);
  }
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    check_ok(client_->set(key, to_text(value)));
  }
  using c10d::Store::compareSet;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                  const std::vector<uint8_t>& value) override {
    return to_bytes(take(client_->compare_set(key, to_text(current), to_text(value))));
  }
  // Waits for the key, as that of LibTorch.
  std::vector<uint8_t> get(const std::string& key) override {
    wait({key});
    return to_bytes(take(client_->get(key)).value_or(""));
  }
  int64_t add(const std::string& key, int64_t value) override {
    return take(client_->add(key, value));
  }
  bool deleteKey(const std::string& key) override { return take(client_->remove(key)); }
  bool check(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(keys, [this](const auto& key) { return take(client_->has(key)); });
  }
  int64_t getNumKeys() override { return take(client_->count_keys()); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const Deadline deadline =
        timeout == kNoTimeout ? kNoDeadline : std::chrono::steady_clock::now() + timeout;
    milliseconds interval(1);
    while (!check(keys)) {
      if (std::chrono::steady_clock::now() >= deadline)
        C10_THROW_ERROR(DistStoreError, "the keys are not set in time");
      std::this_thread::sleep_for(interval);
      interval = std::min(2 * interval, kMaxPollInterval);
    }
  }

 private:
  static constexpr milliseconds kMaxPollInterval{20};

  static void check_ok(const Status& status) {
    if (!status.ok()) C10_THROW_ERROR(DistStoreError, status.message());
  }
  template <typename Value>
  static Value take(Result<Value> result) {
    check_ok(result.status());
    return *std::move(result);
  }

  const std::string address_;
  const uint16_t port_;
  const std::string secret_;
  const milliseconds reply_timeout_;
  const std::unique_ptr<StoreClient> client_;
};

}  // namespace

struct TcpStore::Connection {
  std::unique_ptr<StoreServer> maybe_server = {};
  c10::intrusive_ptr<c10d::Store> store = {};  // first to be destroyed
};

std::string short_message(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  // "[/path/gloo/transport/tcp/pair.cc:547] "
  const size_t end = text.find("] ");
  if (text.starts_with('[') && end != std::string::npos) text.erase(0, end + 2);
  return text;
}

TcpStore::TcpStore(std::unique_ptr<Connection> connection, std::string address, uint16_t port,
                   TcpStoreOptions options)
    : connection_(std::move(connection)),
      address_(std::move(address)),
      port_(port),
      options_(std::move(options)) {}

TcpStore::~TcpStore() = default;

Result<std::unique_ptr<TcpStore>> TcpStore::open(const std::string& address, uint16_t port,
                                                 std::optional<int> listening_fd,
                                                 TcpStoreOptions options) {
  disable_torch_warnings();
  c10d::TCPStoreOptions tcp;
  tcp.port = port;
  tcp.isServer = listening_fd.has_value();
  tcp.waitWorkers = false;
  tcp.timeout = options.reply_timeout;
  tcp.masterListenFd = listening_fd;
  const Endpoint server(address, port);
  try {
    auto connection = std::make_unique<Connection>();
    {
      const FirstReplyLimit limit(server, options.reply_timeout);
      connection->store = c10::make_intrusive<c10d::PrefixStore>(
          options.prefix, c10::make_intrusive<c10d::TCPStore>(address, tcp));
    }
    limit_replies(server, options.reply_timeout);
    return std::unique_ptr<TcpStore>(
        new TcpStore(std::move(connection), address, port, std::move(options)));
  } catch (const std::exception& error) {
    const std::string where = join_host_and_port(address, port);
    if (listening_fd)
      return Status(StatusCode::kIoError,
                    "serve the group's store on " + where + ": " + short_message(error));
    return Status(StatusCode::kPeerLost,
                  "the process that listens on " + where +
                      " does not respond as the group's store: " + short_message(error) +
                      "; if it is another program, " + options.port_hint);
  }
}

Result<std::unique_ptr<TcpStore>> TcpStore::open_authenticated(
    const std::string& address, uint16_t port, std::unique_ptr<StoreServer> maybe_server,
    TcpStoreOptions options) {
  try {
    auto connection = std::make_unique<Connection>();
    connection->maybe_server = std::move(maybe_server);
    connection->store = c10::make_intrusive<c10d::PrefixStore>(
        options.prefix,
        c10::make_intrusive<C10dStore>(address, port, options.secret, options.reply_timeout));
    return std::unique_ptr<TcpStore>(
        new TcpStore(std::move(connection), address, port, std::move(options)));
  } catch (const std::exception& error) {
    return Status(StatusCode::kPeerLost,
                  "the process that listens on " + join_host_and_port(address, port) +
                      " does not respond as the group's store: " + short_message(error) +
                      "; if it is another program, or of another run, " + options.port_hint +
                      "; all processes of a run must see the same run directory");
  }
}

Result<std::unique_ptr<TcpStore>> TcpStore::serve(ListeningPort listening,
                                                  TcpStoreOptions options) {
  if (!options.secret.empty()) {
    const std::string address = listening.address;
    const uint16_t port = listening.port;
    auto server = StoreServer::start(std::move(listening), options.secret);
    if (!server.ok())
      return server.status().with_context("serve the group's store on " +
                                          join_host_and_port(address, port));
    return open_authenticated(address, port, *std::move(server), std::move(options));
  }
  return open(listening.address, listening.port, listening.fd.release(), std::move(options));
}

Result<std::unique_ptr<TcpStore>> TcpStore::connect(const std::string& address, uint16_t port,
                                                    TcpStoreOptions options) {
  if (!options.secret.empty())
    return open_authenticated(address, port, nullptr, std::move(options));
  return open(address, port, std::nullopt, std::move(options));
}

Status TcpStore::lost() const {
  return Status(StatusCode::kPeerLost,
                "the group's store on " + join_host_and_port(address_, port_) + ", served by " +
                    options_.server + ", does not respond; see the log of " + options_.server);
}

Status TcpStore::call(const std::function<void()>& request) {
  if (is_lost_) return lost();
  try {
    request();
    return {};
  } catch (const std::exception&) {
    is_lost_ = true;
    return lost();
  }
}

Status TcpStore::set(const std::string& key, const std::string& value) {
  return call([&] { connection_->store->set(key, to_bytes(value)); });
}

Result<std::optional<std::string>> TcpStore::get(const std::string& key) {
  std::optional<std::string> value;
  STOKER_RETURN_IF_ERROR(call([&] {
    if (connection_->store->check({key})) value = to_text(connection_->store->get(key));
  }));
  return value;
}

Result<std::string> TcpStore::set_if_absent(const std::string& key, const std::string& value) {
  std::string found;
  STOKER_RETURN_IF_ERROR(
      call([&] { found = to_text(connection_->store->compareSet(key, {}, to_bytes(value))); }));
  return found;
}

Result<int64_t> TcpStore::add(const std::string& key, int64_t summand) {
  int64_t sum = 0;
  STOKER_RETURN_IF_ERROR(call([&] { sum = connection_->store->add(key, summand); }));
  return sum;
}

// TCPStore::wait() cannot be stopped, and logs each of its timeouts.
Status TcpStore::wait(const std::string& key, Deadline deadline, const std::stop_token& stop) {
  milliseconds interval(1);
  while (true) {
    if (stop.stop_requested())
      return Status(StatusCode::kCancelled, "the wait for " + key + " in the store was stopped");
    bool is_set = false;
    STOKER_RETURN_IF_ERROR(call([&] { is_set = connection_->store->check({key}); }));
    if (is_set) return {};
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline)
      return Status(StatusCode::kTimedOut, "store key " + key + " is not set in time");
    sleep_until(stop, std::min<Deadline>(deadline, now + interval));
    interval = std::min(2 * interval, options_.poll_interval);
  }
}

c10d::Store& TcpStore::c10d_store() const { return *connection_->store; }

}  // namespace stoker::group
