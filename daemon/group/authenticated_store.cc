#include "daemon/group/authenticated_store.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "shared/base/coordinator.h"
#include "shared/base/directory_root.h"
#include "shared/base/thread_registry.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kMagic = "stoker 2";
constexpr size_t kSecretBytes = 32;  // written in hexadecimal digits
constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;  // of SHA-256
constexpr size_t kGreetingBytes = kMagic.size() + kNonceBytes;
constexpr size_t kAnswerBytes = kNonceBytes + kProofBytes;
constexpr size_t kTagBytes = kProofBytes;
constexpr size_t kRequestHeader = 1 + 3 * sizeof(uint32_t);
constexpr size_t kReplyHeader = 1 + sizeof(uint32_t);
constexpr size_t kChunk = 65'536;
constexpr size_t kAcceptedTogether = 16;
constexpr int kAttempts = 10;  // of a client
constexpr milliseconds kMaxPause{64};
constexpr milliseconds kAcceptPause{100};  // when there are no descriptors
constexpr ThreadActivity kServe{.operation = "serve group's store", .is_waiting = true};

enum class Outcome : uint8_t { kNone, kValue, kFull };

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size)) != 1)
    throw std::runtime_error("the system has no random numbers");
  return bytes;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string code(kProofBytes, '\0');
  unsigned int size = 0;
  if (::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(code.data()), &size) == nullptr ||
      size != kProofBytes)
    throw std::runtime_error("libcrypto has no HMAC-SHA256");
  return code;
}

// What only those know that know the secret, of one connection. No `purpose` is the beginning of another with the
// same size, so that each has texts of its own whatever nonces a peer chooses.
std::string prove(std::string_view purpose, std::string_view secret, std::string_view server_nonce,
                  std::string_view client_nonce) {
  return hmac_sha256(secret, std::string(purpose).append(server_nonce).append(client_nonce));
}

constexpr std::string_view kRequests = "client messages";
constexpr std::string_view kReplies = "server messages";

// In a time that depends on the size only.
bool is_equal(std::string_view proof, std::string_view expected) {
  return proof.size() == expected.size() &&
         ::CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

void append_size(std::string& to, size_t size) {
  for (int shift = 0; shift < 32; shift += 8)
    to.push_back(static_cast<char>(static_cast<uint32_t>(size) >> shift & 0xff));
}

size_t size_at(std::string_view bytes, size_t offset) {
  uint32_t size = 0;
  for (size_t i = 0; i < sizeof size; ++i)
    size |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  return size;
}

std::string make_reply(Outcome result, std::string_view value = {}) {
  std::string reply(1, static_cast<char>(result));
  append_size(reply, value.size());
  return reply.append(value);
}

int64_t to_number(std::string_view text) {
  int64_t number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void send_immediately(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string MessageTags::next(std::string_view message) {
  std::string number;
  for (int shift = 0; shift < 64; shift += 8) number.push_back(static_cast<char>(count_ >> shift));
  ++count_;
  return hmac_sha256(hmac_sha256(key_, number), message);
}

namespace {

// ---- secret --------------------------------------------------------------------------------------

// kNotFound.
Result<std::string> read_secret(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, default_file_system().open(path, O_RDONLY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, path);
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status(StatusCode::kPermission,
                  path +
                      ": must belong to the user of this process, with mode 0600; remove it, and "
                      "the next start creates another one");
  std::string secret(2 * kSecretBytes + 1, '\0');
  const ssize_t size = ::read(fd.get(), secret.data(), secret.size());
  if (size < 0) return Status::from_errno(errno, path);
  secret.resize(static_cast<size_t>(size));
  if (secret.size() != 2 * kSecretBytes)
    return Status(StatusCode::kCorrupt, path +
                                            ": is not a secret of stokerd; remove it, and the "
                                            "next start creates another one");
  return secret;
}

std::string new_secret() {
  std::string text;
  for (const char byte : random_bytes(kSecretBytes))
    for (const int shift : {4, 0})
      text.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 0xf]);
  return text;
}

// Gives `from` the name `to`, unless there is one: kAlreadyExists. A link, which is atomic on NFS, too.
Status publish(FileSystem& files, const std::string& from, const std::string& to) {
  STOKER_ASSIGN_OR_RETURN(const PathAt source, resolve_parent(from));
  STOKER_ASSIGN_OR_RETURN(const PathAt target, resolve_parent(to));
  if (::linkat(source.at(), source.name.c_str(), target.at(), target.name.c_str(), 0) == 0)
    return files.remove_file(from);
  if (errno == EEXIST) return Status::from_errno(errno, to);
  if (errno == ENOENT) return Status::from_errno(errno, from);
  return files.rename_noreplace(from, to);  // a file system without links
}

// kNotFound: another process of the run, which starts, has removed the temporary file.
Status create_secret(const std::string& path) {
  FileSystem& files = default_file_system();
  const std::string temporary = temporary_path(path), secret = new_secret();
  const Status written = [&]() -> Status {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files.open(temporary, kNewFile, 0600));
    STOKER_RETURN_IF_ERROR(files.write(fd.get(), std::as_bytes(std::span(secret)), temporary));
    STOKER_RETURN_IF_ERROR(files.sync(fd.get(), temporary));
    return publish(files, temporary, path);
  }();
  if (!written.ok()) (void)files.remove_file(temporary);
  return written;
}

}  // namespace

// Complete before it has its name, which one of several processes gives it.
Result<std::string> read_or_create_secret(const std::string& path) {
  for (int attempt = 1;; ++attempt) {
    auto found = read_secret(path);
    if (found.status().code() != StatusCode::kNotFound) return found;
    const Status created = create_secret(path);
    const bool may_continue = created.ok() || created.code() == StatusCode::kAlreadyExists ||
                              (created.code() == StatusCode::kNotFound && attempt < kAttempts);
    if (!may_continue) return created;
  }
}

// ---- server --------------------------------------------------------------------------------------

class StoreServer::Loop {
 public:
  Loop(ListeningPort listening, std::string secret, const StoreLimits& limits)
      : listening_(std::move(listening)), secret_(std::move(secret)), limits_(limits) {}

  Status start() {
    epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll_.valid() || !wake_.valid()) return Status::from_errno(errno, "serve a store");
    const int flags = ::fcntl(listening_.fd.get(), F_GETFL);
    if (flags < 0 || ::fcntl(listening_.fd.get(), F_SETFL, flags | O_NONBLOCK) != 0 ||
        !watch(EPOLL_CTL_ADD, listening_.fd.get(), kListener, EPOLLIN) ||
        !watch(EPOLL_CTL_ADD, wake_.get(), kWake, EPOLLIN))
      return Status::from_errno(errno, "serve a store");
    thread_.start("group-store", [this](const std::stop_token& stop) { return run(stop); });
    return {};
  }

 private:
  static constexpr uint64_t kListener = 0, kWake = 1, kFirstConnection = 2;

  struct Connection {
    UniqueFd fd;
    std::string nonce;
    Deadline to_authenticate;
    bool is_authenticated = false;
    std::string received = {}, unsent = {};
    MessageTags requests = {}, replies = {};
    uint32_t events = EPOLLIN;  // that are watched
  };

  Status run(const std::stop_token& stop) {
    const ScopedActivity serving(kServe);
    const std::stop_callback wake(stop, [this] { (void)::eventfd_write(wake_.get(), 1); });
    std::array<epoll_event, 64> events{};
    while (!stop.stop_requested()) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     time_to_wait());
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<size_t>(i)];
        if (event.data.u64 == kListener) accept_some();
        if (event.data.u64 >= kFirstConnection && !serve(event.data.u64)) drop(event.data.u64);
      }
      close_late();
      if (is_accepting_paused_) {
        is_accepting_paused_ = false;
        (void)watch(EPOLL_CTL_MOD, listening_.fd.get(), kListener, EPOLLIN);
      }
    }
    return {};
  }

  bool watch(int operation, int fd, uint64_t id, uint32_t events) {
    epoll_event event{.events = events, .data = {.u64 = id}};
    return ::epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }

  int time_to_wait() const {
    if (is_accepting_paused_) return static_cast<int>(kAcceptPause.count());
    if (unauthenticated_.empty()) return -1;
    const auto remaining = std::chrono::ceil<milliseconds>(
        connections_.at(*unauthenticated_.begin()).to_authenticate - steady_clock::now());
    return static_cast<int>(std::max<int64_t>(0, remaining.count()));
  }

  void drop(uint64_t id) {
    unauthenticated_.erase(id);
    connections_.erase(id);
  }

  // Not all that are waiting, so that those before can prove the secret meanwhile. The event comes again.
  void accept_some() {
    for (size_t i = 0; i < kAcceptedTogether; ++i) {
      UniqueFd fd(::accept4(listening_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (!fd.valid() && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (!fd.valid()) return make_room();
      if (unauthenticated_.size() >= limits_.unauthenticated) drop_oldest();
      if (connections_.size() < limits_.connections) greet(std::move(fd));
    }
  }

  // Unless its proof has arrived.
  void drop_oldest() {
    const uint64_t oldest = *unauthenticated_.begin();
    if (!serve(oldest) || unauthenticated_.contains(oldest)) drop(oldest);
  }

  // There are no descriptors, or no memory. The event comes again.
  void make_room() {
    if (!unauthenticated_.empty()) return drop_oldest();
    is_accepting_paused_ = watch(EPOLL_CTL_MOD, listening_.fd.get(), kListener, 0);
  }

  void greet(UniqueFd fd) {
    send_immediately(fd.get());
    std::string nonce = random_bytes(kNonceBytes);
    const std::string greeting = std::string(kMagic) + nonce;
    // The buffer of a new connection is empty.
    if (::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(greeting.size()))
      return;
    const uint64_t id = next_id_++;
    if (!watch(EPOLL_CTL_ADD, fd.get(), id, EPOLLIN)) return;
    connections_.emplace(
        id, Connection{.fd = std::move(fd),
                       .nonce = std::move(nonce),
                       .to_authenticate = steady_clock::now() + limits_.to_authenticate});
    unauthenticated_.insert(id);
  }

  void close_late() {
    const auto now = steady_clock::now();
    while (!unauthenticated_.empty() &&
           connections_.at(*unauthenticated_.begin()).to_authenticate <= now)
      drop(*unauthenticated_.begin());
  }

  // False: the connection ends.
  bool serve(uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return true;  // dropped in this round
    Connection& connection = found->second;
    if (!connection.unsent.empty()) {
      if (!send_rest(connection)) return false;
    } else if (!receive(connection)) {
      return false;
    }
    if (!connection.is_authenticated) {
      if (connection.received.size() < kAnswerBytes) return true;
      if (!authenticate(connection)) return false;
      unauthenticated_.erase(id);
    }
    // A client that does not read its reply is not read from, either.
    while (connection.unsent.empty()) {
      const std::optional<size_t> size = next_request(connection.received);
      if (!size) return false;
      if (*size == 0) break;
      if (!handle_request(connection, *size)) return false;
      if (!send_rest(connection)) return false;
    }
    const uint32_t events = connection.unsent.empty() ? EPOLLIN : EPOLLOUT;
    if (events == connection.events) return true;
    connection.events = events;
    return watch(EPOLL_CTL_MOD, connection.fd.get(), id, events);
  }

  // False: its tag is wrong.
  bool handle_request(Connection& from, size_t size) {
    const std::string_view received = from.received;
    const std::string_view request = received.substr(0, size - kTagBytes);
    if (!is_equal(received.substr(request.size(), kTagBytes), from.requests.next(request)))
      return false;
    from.unsent = answer(request);
    from.unsent += from.replies.next(from.unsent);
    from.received.erase(0, size);
    return true;
  }

  static bool receive(Connection& from) {
    std::array<char, kChunk> bytes;
    const size_t wanted =
        from.is_authenticated ? bytes.size() : kAnswerBytes - from.received.size();
    const ssize_t size = ::recv(from.fd.get(), bytes.data(), wanted, 0);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    from.received.append(bytes.data(), static_cast<size_t>(size));
    return size > 0;
  }

  static bool send_rest(Connection& to) {
    const ssize_t size = ::send(to.fd.get(), to.unsent.data(), to.unsent.size(), MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    to.unsent.erase(0, static_cast<size_t>(size));
    return true;
  }

  bool authenticate(Connection& connection) const {
    const std::string_view answer = connection.received;
    const std::string_view client_nonce = answer.substr(0, kNonceBytes);
    if (!is_equal(answer.substr(kNonceBytes),
                  prove("client", secret_, connection.nonce, client_nonce)))
      return false;
    connection.unsent = prove("server", secret_, connection.nonce, client_nonce);
    connection.requests = MessageTags(prove(kRequests, secret_, connection.nonce, client_nonce));
    connection.replies = MessageTags(prove(kReplies, secret_, connection.nonce, client_nonce));
    connection.received.clear();
    connection.is_authenticated = true;
    return send_rest(connection);
  }

  // Its size; 0: it is not complete. nullopt: it is too large, or none.
  std::optional<size_t> next_request(std::string_view received) const {
    if (received.size() < kRequestHeader) return 0;
    const auto operation = static_cast<uint8_t>(received[0]);
    const size_t key = size_at(received, 1), expected = size_at(received, 5),
                 value = size_at(received, 9);
    if (operation < static_cast<uint8_t>(StoreOperation::kSet) ||
        operation > static_cast<uint8_t>(StoreOperation::kCount) || key > limits_.key_bytes ||
        expected > limits_.value_bytes || value > limits_.value_bytes)
      return std::nullopt;
    const size_t size = kRequestHeader + key + expected + value + kTagBytes;
    return received.size() < size ? 0 : size;
  }

  std::string answer(std::string_view request) {
    const size_t key_size = size_at(request, 1), expected_size = size_at(request, 5);
    const std::string key(request.substr(kRequestHeader, key_size));
    const std::string_view expected = request.substr(kRequestHeader + key_size, expected_size);
    const std::string_view value =
        request.substr(kRequestHeader + key_size + expected_size, size_at(request, 9));
    const auto found = values_.find(key);
    const bool is_set = found != values_.end();
    switch (static_cast<StoreOperation>(request[0])) {
      case StoreOperation::kSet:
        return make_reply(set(key, value) ? Outcome::kNone : Outcome::kFull);
      case StoreOperation::kGet:
        return is_set ? make_reply(Outcome::kValue, found->second) : make_reply(Outcome::kNone);
      case StoreOperation::kHas:
        return make_reply(is_set ? Outcome::kValue : Outcome::kNone);
      case StoreOperation::kCompareSet:
        if (is_set ? found->second != expected : !expected.empty())
          return make_reply(Outcome::kValue, is_set ? std::string_view(found->second) : expected);
        return set(key, value) ? make_reply(Outcome::kValue, value) : make_reply(Outcome::kFull);
      case StoreOperation::kAdd: {
        const int64_t summand = to_number(value);
        int64_t sum = 0;
        (void)__builtin_add_overflow(is_set ? to_number(found->second) : 0, summand, &sum);
        const std::string text = std::to_string(sum);
        return set(key, text) ? make_reply(Outcome::kValue, text) : make_reply(Outcome::kFull);
      }
      case StoreOperation::kRemove:
        if (!is_set) return make_reply(Outcome::kNone);
        bytes_ -= key.size() + found->second.size();
        values_.erase(found);
        return make_reply(Outcome::kValue);
      case StoreOperation::kCount:
        return make_reply(Outcome::kValue, std::to_string(values_.size()));
    }
    return make_reply(Outcome::kNone);  // next_request() has no other
  }

  // False: the store is full.
  bool set(const std::string& key, std::string_view value) {
    const auto found = values_.find(key);
    const bool is_set = found != values_.end();
    const size_t before = is_set ? key.size() + found->second.size() : 0;
    const size_t after = bytes_ - before + key.size() + value.size();
    if (after > limits_.bytes || (!is_set && values_.size() >= limits_.keys)) return false;
    values_.insert_or_assign(key, std::string(value));
    bytes_ = after;
    return true;
  }

  // Constant after construction.
  const ListeningPort listening_;
  const std::string secret_;
  const StoreLimits limits_;
  UniqueFd epoll_, wake_;
  // Of the thread.
  std::map<uint64_t, Connection> connections_;
  std::set<uint64_t> unauthenticated_;  // from the oldest on
  uint64_t next_id_ = kFirstConnection;
  bool is_accepting_paused_ = false;
  std::unordered_map<std::string, std::string> values_;
  size_t bytes_ = 0;

  Coordinator thread_;  // last: uses the members above
};

StoreServer::StoreServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
StoreServer::~StoreServer() = default;

Result<std::unique_ptr<StoreServer>> StoreServer::start(ListeningPort listening,
                                                        const std::string& secret,
                                                        const StoreLimits& limits) {
  auto loop = std::make_unique<Loop>(std::move(listening), secret, limits);
  STOKER_RETURN_IF_ERROR(loop->start());
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(loop)));
}

// ---- client --------------------------------------------------------------------------------------

namespace {

Status no_reply() { return Status(StatusCode::kPeerLost, "no reply in time"); }
Status changed_reply() {
  return Status(StatusCode::kPeerLost,
                "a reply is not that of stokerd; another process is between it and this one");
}
Status closed() { return Status(StatusCode::kClosed, "the connection was closed"); }

Status wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    const auto remaining = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (remaining.count() <= 0) return no_reply();
    pollfd ready{.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&ready, 1, static_cast<int>(remaining.count()));
    if (count > 0) return {};
    if (count < 0 && errno != EINTR) return Status::from_errno(errno, "wait for a store");
  }
}

Status send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN && errno != EINTR) return closed();
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
    if (size < 0) STOKER_RETURN_IF_ERROR(wait_for(fd, POLLOUT, deadline));
  }
  return {};
}

Result<std::string> receive_all(int fd, size_t size, Deadline deadline) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    const ssize_t received = ::recv(fd, bytes.data() + at, size - at, 0);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) return closed();
    if (received > 0) at += static_cast<size_t>(received);
    if (received < 0) STOKER_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline));
  }
  return bytes;
}

}  // namespace

// Again if the connection is closed before the handshake has ended: the server closes the oldest when others open very
// many at the same time.
Result<std::unique_ptr<StoreClient>> StoreClient::connect(const std::string& address, uint16_t port,
                                                          const std::string& secret,
                                                          milliseconds timeout) {
  const Deadline deadline = steady_clock::now() + timeout;
  milliseconds pause(1);
  for (int attempt = 1;; ++attempt) {
    auto client = try_to_connect(address, port, secret, timeout);
    if (client.ok() || client.status().code() != StatusCode::kClosed) return client;
    if (attempt == kAttempts || steady_clock::now() >= deadline)
      return Status(StatusCode::kPeerLost,
                    "it closes connections, as to those that do not know the secret of its run");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kMaxPause);
  }
}

Result<std::unique_ptr<StoreClient>> StoreClient::try_to_connect(const std::string& address,
                                                                 uint16_t port,
                                                                 const std::string& secret,
                                                                 milliseconds timeout) {
  auto fd = connect_to(address, port, steady_clock::now() + timeout);
  if (!fd.ok()) return Status(StatusCode::kPeerLost, fd.status().message());
  send_immediately(fd->get());
  std::unique_ptr<StoreClient> client(new StoreClient(*std::move(fd), timeout));
  STOKER_RETURN_IF_ERROR(client->authenticate(secret));
  return client;
}

Status StoreClient::authenticate(const std::string& secret) {
  const Deadline deadline = steady_clock::now() + timeout_;
  STOKER_ASSIGN_OR_RETURN(const std::string greeting,
                          receive_all(fd_.get(), kGreetingBytes, deadline));
  if (!greeting.starts_with(kMagic))
    return Status(StatusCode::kPeerLost, "it is another program, or another version of stokerd");
  const std::string server_nonce = greeting.substr(kMagic.size());
  const std::string client_nonce = random_bytes(kNonceBytes);
  STOKER_RETURN_IF_ERROR(send_all(
      fd_.get(), client_nonce + prove("client", secret, server_nonce, client_nonce), deadline));
  STOKER_ASSIGN_OR_RETURN(const std::string proof, receive_all(fd_.get(), kProofBytes, deadline));
  if (!is_equal(proof, prove("server", secret, server_nonce, client_nonce)))
    return Status(StatusCode::kPermission, "it does not know the secret of this run");
  requests_ = MessageTags(prove(kRequests, secret, server_nonce, client_nonce));
  replies_ = MessageTags(prove(kReplies, secret, server_nonce, client_nonce));
  return {};
}

Result<std::optional<std::string>> StoreClient::request(StoreOperation operation,
                                                        std::string_view key,
                                                        std::string_view expected,
                                                        std::string_view value) {
  std::string request(1, static_cast<char>(operation));
  for (const std::string_view part : {key, expected, value}) append_size(request, part.size());
  request.append(key).append(expected).append(value);
  const std::lock_guard lock(mutex_);
  auto reply = exchange(request, steady_clock::now() + timeout_);
  if (reply.ok() || reply.status().code() == StatusCode::kNoSpace) return reply;
  fd_.reset();  // replies can no longer be matched to requests
  return Status(StatusCode::kPeerLost, reply.status().message());
}

Result<std::optional<std::string>> StoreClient::exchange(std::string_view request,
                                                         Deadline deadline) {
  if (!fd_.valid())
    return Status(StatusCode::kPeerLost, "the connection ended by an earlier error");
  STOKER_RETURN_IF_ERROR(
      send_all(fd_.get(), std::string(request) + requests_.next(request), deadline));
  STOKER_ASSIGN_OR_RETURN(std::string reply, receive_all(fd_.get(), kReplyHeader, deadline));
  const size_t size = size_at(reply, 1);
  if (size > StoreLimits{}.value_bytes)
    return changed_reply();  // before memory is allocated for it
  STOKER_ASSIGN_OR_RETURN(const std::string rest,
                          receive_all(fd_.get(), size + kTagBytes, deadline));
  reply += std::string_view(rest).substr(0, size);
  if (!is_equal(std::string_view(rest).substr(size), replies_.next(reply))) return changed_reply();
  switch (static_cast<Outcome>(reply[0])) {
    case Outcome::kNone:
      return std::optional<std::string>();
    case Outcome::kValue:
      return std::optional(reply.substr(kReplyHeader));
    case Outcome::kFull:
      return Status(StatusCode::kNoSpace, "the group's store is full");
  }
  return changed_reply();  // of another version
}

Status StoreClient::set(std::string_view key, std::string_view value) {
  return request(StoreOperation::kSet, key, {}, value).status();
}

Result<std::optional<std::string>> StoreClient::get(std::string_view key) {
  return request(StoreOperation::kGet, key, {}, {});
}

Result<bool> StoreClient::has(std::string_view key) {
  STOKER_ASSIGN_OR_RETURN(const auto value, request(StoreOperation::kHas, key, {}, {}));
  return value.has_value();
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view value) {
  STOKER_ASSIGN_OR_RETURN(auto found, request(StoreOperation::kCompareSet, key, expected, value));
  return std::move(found).value_or("");
}

Result<int64_t> StoreClient::add(std::string_view key, int64_t summand) {
  STOKER_ASSIGN_OR_RETURN(const auto sum,
                          request(StoreOperation::kAdd, key, {}, std::to_string(summand)));
  return to_number(sum.value_or(""));
}

Result<bool> StoreClient::remove(std::string_view key) {
  STOKER_ASSIGN_OR_RETURN(const auto value, request(StoreOperation::kRemove, key, {}, {}));
  return value.has_value();
}

Result<int64_t> StoreClient::count_keys() {
  STOKER_ASSIGN_OR_RETURN(const auto count, request(StoreOperation::kCount, {}, {}, {}));
  return to_number(count.value_or(""));
}

}  // namespace stoker::group
