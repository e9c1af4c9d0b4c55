// Authenticated store: the group's key-value store where stokerd serves it, over TCP, for processes that know the
// secret of the run. Every local user can connect to a port, and others too if it is not of the loopback
// interface; what they can do ends with the handshake. (torchrun's agent serves a store of its own: TcpStore.)
//
//   server  "stoker 2", a nonce S                            40 bytes
//   client  a nonce C, HMAC-SHA256(secret, "client" S C)     64 bytes
//   server  HMAC-SHA256(secret, "server" S C)                32 bytes
//
// The server reads nothing else before it has compared the proof, and closes the connection without an answer if
// it is wrong. The client compares that of the server, so that a process that has taken the port learns no key
// and supplies none. One request and its reply after the other follow, with integers in little-endian order. Each ends
// with a tag, so that a process that passes the handshake on, or changes packets, can end the connection and read
// what it transfers (nothing is encrypted), but neither change, repeat, add nor drop a message.
//
//   request  an operation (1 byte), sizes of key, expected and new value (4 bytes each), these three, a tag (32 bytes)
//   reply    a result (1 byte), a size (4 bytes), the value, a tag (32 bytes)
//   tag      HMAC-SHA256(HMAC-SHA256(K, N), the message before it), with N the number of earlier messages of its
//            side (8 bytes) and K = HMAC-SHA256(secret, "client messages" S C), or "server messages"
//
// Threads:  the server has its own. Any may call a client; its calls wait for each other.
// Blocking: a client's calls for one reply, at most for its timeout; connect() for about 0.3 s longer if it is rejected. The
//           server never waits for a client.
// Errors:   of a client, kPeerLost: the server does not respond, or not with its tag, and no later call succeeds. connect():
//           kPermission: the server is of another run; kPeerLost. kNoSpace: the store is full.
// Crash:    of a client: none. Of the server: kPeerLost for all clients.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/group/socket_address.h"
#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::group {

// The secret in the file, which is created with mode 0600 if it does not exist. Any process of the run may call this at
// any time. kPermission: it belongs to another user, or others may read or write it. kCorrupt.
Result<std::string> read_or_create_secret(const std::string& path);

struct StoreLimits {
  // Connections that have not proven the secret; the oldest is closed for a new one, and each after the time.
  size_t unauthenticated = 256;
  std::chrono::milliseconds to_authenticate{10'000};
  // Of processes of the run.
  size_t connections = 16'384;
  size_t keys = 1'000'000;
  size_t key_bytes = 4'096;
  size_t value_bytes = size_t{32} << 20;
  size_t bytes = size_t{512} << 20;  // of all keys and values
};

class StoreServer {
 public:
  static Result<std::unique_ptr<StoreServer>> start(ListeningPort listening,
                                                    const std::string& secret,
                                                    const StoreLimits& limits = {});
  ~StoreServer();

 private:
  class Loop;
  explicit StoreServer(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

// The tags of the messages of one side, in their order.
class MessageTags {
 public:
  MessageTags() = default;
  explicit MessageTags(std::string key) : key_(std::move(key)) {}
  std::string next(std::string_view message);

 private:
  std::string key_;
  uint64_t count_ = 0;
};

enum class StoreOperation : uint8_t { kSet = 1, kGet, kHas, kCompareSet, kAdd, kRemove, kCount };

class StoreClient {
 public:
  // `address` is numeric.
  static Result<std::unique_ptr<StoreClient>> connect(const std::string& address, uint16_t port,
                                                      const std::string& secret,
                                                      std::chrono::milliseconds timeout);

  Status set(std::string_view key, std::string_view value);
  // nullopt: it is not set.
  Result<std::optional<std::string>> get(std::string_view key);
  Result<bool> has(std::string_view key);
  // Sets the key if its value is `expected`, or if it is not set and `expected` is empty. Returns the value after
  // that; `expected` if it is not set.
  Result<std::string> compare_set(std::string_view key, std::string_view expected,
                                  std::string_view value);
  // Adds to a decimal number, 0 if the key is not set.
  Result<int64_t> add(std::string_view key, int64_t summand);
  // Whether it was set.
  Result<bool> remove(std::string_view key);
  Result<int64_t> count_keys();

 private:
  static Result<std::unique_ptr<StoreClient>> try_to_connect(const std::string& address,
                                                             uint16_t port,
                                                             const std::string& secret,
                                                             std::chrono::milliseconds timeout);
  StoreClient(UniqueFd fd, std::chrono::milliseconds timeout)
      : timeout_(timeout), fd_(std::move(fd)) {}
  Status authenticate(const std::string& secret);
  // The value of the reply; nullopt: it has none.
  Result<std::optional<std::string>> request(StoreOperation operation, std::string_view key,
                                             std::string_view expected, std::string_view value);
  Result<std::optional<std::string>> exchange(std::string_view request, Deadline deadline);

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  // Guarded by mutex_, which connect() needs not hold.
  UniqueFd fd_;  // not valid after an error
  MessageTags requests_, replies_;
};

}  // namespace stoker::group
