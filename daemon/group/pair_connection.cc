#include "daemon/group/pair_connection.h"

#include <cassert>
#include <exception>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace stoker::group {
namespace {

constexpr int kTagMask = 0x3fffffff;  // tags repeat long after their transfers have ended

}  // namespace

struct PairConnection::Backend {
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
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
    auto gloo = c10d::ProcessGroupGloo::Options::create(options.open_timeout);
    gloo->threads = 1;
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    auto keys = c10::make_intrusive<c10d::PrefixStore>(
        options.prefix,
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.c10d_store()));
    auto backend = std::make_unique<Backend>();
    backend->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(keys), options.side, 2,
                                                                std::move(gloo));
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
  const int peer = 1 - options_.side;
  int& count = is_send ? num_sent_ : num_received_;
  const int tag = count++ & kTagMask;
  Status result;
  try {
    std::vector<at::Tensor> tensors{tensor};
    const auto work = is_send ? backend_->gloo->send(tensors, peer, tag)
                              : backend_->gloo->recv(tensors, peer, tag);
    const std::stop_callback wake(stop, [&work] { work->abort(); });
    if (!work->wait(options_.timeout)) result = Status(StatusCode::kCancelled, "stopped");
  } catch (const std::exception& error) {
    result = lost(short_message(error));
  }
  // A transfer that was not completed would wait for the other process.
  if (!result.ok()) backend_.reset();
  return result;
}

}  // namespace stoker::group
