#include "daemon/group/pair_connection.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "daemon/group/closed_listeners.h"
#include "daemon/group/connection_watcher.h"

namespace stoker::group {
namespace {

constexpr int kTagMask = 0x3fffffff;  // tags repeat long after their transfers have ended
constexpr std::chrono::milliseconds kCheckInterval{1'000};

}  // namespace

struct PairConnection::Backend {
  Backend(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int of_peer,
          std::chrono::milliseconds check_interval)
      : gloo(std::move(group)), peer(of_peer), connections(*gloo, {peer}, check_interval) {}

  const c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  const int peer;
  ConnectionWatcher connections;
};

PairConnection::PairConnection(std::unique_ptr<Backend> backend, PairOptions options)
    : options_(std::move(options)), backend_(std::move(backend)) {}

PairConnection::~PairConnection() = default;

Status PairConnection::lost(const std::string& reason) const {
  return Status(StatusCode::kPeerLost,
                options_.peer + " exited, hangs or cannot be reached: " + reason);
}

Result<std::unique_ptr<PairConnection>> PairConnection::open(TcpStore& store,
                                                             const PairOptions& options) {
  try {
    auto gloo =
        c10d::ProcessGroupGloo::Options::create(std::min(options.open_timeout, options.timeout));
    gloo->threads = 1;
    const auto listeners = ClosedListeners::open(options.address, [&] {
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    });
    auto keys = c10::make_intrusive<c10d::PrefixStore>(
        options.prefix,
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.c10d_store()));
    auto backend =
        std::make_unique<Backend>(c10::make_intrusive<c10d::ProcessGroupGloo>(
                                      std::move(keys), options.side, 2, std::move(gloo)),
                                  1 - options.side, std::min(kCheckInterval, options.timeout / 4));
    listeners.close();
    return std::unique_ptr<PairConnection>(new PairConnection(std::move(backend), options));
  } catch (const std::exception& error) {
    return Status(StatusCode::kPeerLost, "cannot connect from " + options.address + " to " +
                                             options.peer + ": " + short_message(error));
  }
}

Status PairConnection::send(const at::Tensor& tensor, const std::stop_token& stop) {
  return transfer(true, tensor, stop);
}

Status PairConnection::receive(const at::Tensor& tensor, const std::stop_token& stop) {
  return transfer(false, tensor, stop);
}

Status PairConnection::transfer(bool is_send, const at::Tensor& tensor,
                                const std::stop_token& stop) {
  assert(tensor.is_cpu() && tensor.is_contiguous());
  if (!backend_) return lost("the connection has ended after an earlier error");
  if (tensor.numel() == 0) return {};
  int& count = is_send ? num_sent_ : num_received_;
  const int tag = count++ & kTagMask;
  Status result;
  try {
    std::vector<at::Tensor> tensors{tensor};
    const c10::intrusive_ptr<c10d::Work> work =
        is_send ? backend_->gloo->send(tensors, backend_->peer, tag)
                : backend_->gloo->recv(tensors, backend_->peer, tag);
    const std::stop_callback wake(stop, [&work] { work->abort(); });
    if (!backend_->connections.wait(*work, backend_->peer, options_.timeout))
      result = Status(StatusCode::kCancelled,
                      std::string(is_send ? "sending" : "receiving") + " a tensor was stopped");
  } catch (const std::exception& error) {
    result = lost(short_message(error));
  }
  // A transfer that was not completed would wait for the other process.
  if (!result.ok()) backend_.reset();
  return result;
}

}  // namespace stoker::group
