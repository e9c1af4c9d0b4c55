// PairConnection: passes tensors between two processes, over LibTorch's Gloo on TCP. Several of them in
// one process are independent: when a process of one is lost, the others are not affected.
//
// Threads:  one at a time, on each side. The process must ignore SIGPIPE, as stokerd does.
// Blocking: open() until the other process has called it, at most for `open_timeout` and for `timeout`. send() and receive() at
//           most for `timeout`; a stop wakes them.
// Owner:    the store must outlive this object; nothing else may use it during open().
// Errors:   kPeerLost: the other process exited, hangs or cannot be reached. kCancelled. The connection
//           cannot be used after an error.
// Crash:    the other process gets kPeerLost.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "daemon/group/tcp_store.h"
#include "shared/base/status.h"

namespace at {
class Tensor;  // so that this header does not include LibTorch
}

namespace stoker::group {

struct PairOptions {
  std::string prefix;   // of its keys in the store; used for one connection only
  int side = 0;         // 0 in one of the processes, 1 in the other
  std::string address;  // on which this process listens: numeric
  std::string peer;     // in messages: "ps 0 (10.0.0.5:2222)"
  std::chrono::milliseconds open_timeout{10'000};
  std::chrono::milliseconds timeout{120'000};  // of a transfer
};

class PairConnection {
 public:
  static Result<std::unique_ptr<PairConnection>> open(TcpStore& store, const PairOptions& options);
  ~PairConnection();

  // The tensors are contiguous, in host memory. That of receive() has the size of the one sent.
  Status send(const at::Tensor& tensor, const std::stop_token& stop);
  Status receive(const at::Tensor& tensor, const std::stop_token& stop);
  // Of the transfers that follow.
  void set_timeout(std::chrono::milliseconds timeout) { options_.timeout = timeout; }

 private:
  struct Backend;  // hides LibTorch

  PairConnection(std::unique_ptr<Backend> backend, PairOptions options);
  Status lost(const std::string& reason) const;
  Status transfer(bool is_send, const at::Tensor& tensor, const std::stop_token& stop);

  PairOptions options_;
  std::unique_ptr<Backend> backend_;  // null after an error
  int num_sent_ = 0, num_received_ = 0;
};

}  // namespace stoker::group
