// TcpStore: a connection to the group's store over TCP, with a limit for each reply. With a secret the store is
// stokerd's own (authenticated_store.h), of which one process of the run serves it. Without one it is that of LibTorch
// (c10d::TCPStore), which torchrun's agent serves, and which answers everybody.
//
// Threads, Blocking, Errors: see Store.
// Owner:    the serving object; the store ends with it.
// Crash:    of a client: none. Of the server: kPeerLost for all clients.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/socket_address.h"
#include "daemon/group/store.h"

namespace c10d {
class Store;
}

namespace stoker::group {

class StoreServer;

struct TcpStoreOptions {
  std::string prefix;  // of all keys: other programs use the store of torchrun's agent too
  std::string server;  // in messages: "rank 0 (node-1)"
  std::string port_hint = "set MASTER_PORT to a free port";
  std::string secret = {};  // of the run; empty: the store of torchrun's agent
  std::chrono::milliseconds reply_timeout{10'000};
  std::chrono::milliseconds poll_interval{20};  // of wait(), after some shorter ones
};

class TcpStore final : public Store {
 public:
  // Serves a store on the port. kIoError.
  static Result<std::unique_ptr<TcpStore>> serve(ListeningPort listening, TcpStoreOptions options);
  // `address` is numeric; a process listens there. kPeerLost.
  static Result<std::unique_ptr<TcpStore>> connect(const std::string& address, uint16_t port,
                                                   TcpStoreOptions options);
  // Another connection to the same store, for requests that may fail or wait without those of this one.
  Result<std::unique_ptr<TcpStore>> connect_again() const {
    return connect(address_, port_, options_);
  }
  ~TcpStore() override;

  Status set(const std::string& key, const std::string& value) override;
  Result<std::optional<std::string>> get(const std::string& key) override;
  Result<std::string> set_if_absent(const std::string& key, const std::string& value) override;
  Result<int64_t> add(const std::string& key, int64_t summand) override;
  Status wait(const std::string& key, Deadline deadline, const std::stop_token& stop) override;

  const std::string& address() const { return address_; }
  uint16_t port() const { return port_; }
  // For ProcessGroupGloo, which must be destroyed before this object.
  c10d::Store& c10d_store() const;

 private:
  struct Connection;  // hides LibTorch

  TcpStore(std::unique_ptr<Connection> connection, std::string address, uint16_t port,
           TcpStoreOptions options);
  static Result<std::unique_ptr<TcpStore>> open(const std::string& address, uint16_t port,
                                                std::optional<int> listening_fd,
                                                TcpStoreOptions options);
  static Result<std::unique_ptr<TcpStore>> open_authenticated(
      const std::string& address, uint16_t port, std::unique_ptr<StoreServer> maybe_server,
      TcpStoreOptions options);
  Status call(const std::function<void()>& request);
  Status lost() const;

  // Constant after construction.
  const std::unique_ptr<Connection> connection_;
  const std::string address_;
  const uint16_t port_;
  const TcpStoreOptions options_;
  // Set by the thread whose call failed: replies can no longer be matched to requests.
  std::atomic<bool> is_lost_{false};
};

// The first line of an exception of LibTorch or Gloo, without a backtrace and source location.
std::string short_message(const std::exception& error);

}  // namespace stoker::group
