#include "daemon/group/pair_connection.h"

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace stoker::group {
namespace {

constexpr int kTagMask = 0x3fffffff;  // tags repeat long after their transfers have ended
constexpr int kProbeTag = kTagMask + 1;
constexpr std::chrono::milliseconds kProbeInterval{1'000};
// Smaller ones arrive as a whole, or not at all.
constexpr size_t kProbedBytes = 512;

}  // namespace

// Gloo does not end a transfer that has begun when the connection closes; each later one fails then. So a
// thread probes the connection during a transfer that takes long: it begins to send a byte that the other
// process never receives.
struct PairConnection::Backend {
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit Backend(std::chrono::milliseconds interval)
      : prober([this, interval](const std::stop_token& stop) { probe(stop, interval); }) {}

  void probe(const std::stop_token& stop, std::chrono::milliseconds interval) {
    uint64_t probed = 0;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      wake.wait_for(lock, stop, interval, [] { return false; });
      if (stop.stop_requested() || !current || std::exchange(probed, count) != count) continue;
      try {
        std::vector<at::Tensor> byte{at::zeros({1}, at::kByte)};
        (void)gloo->send(byte, peer, kProbeTag);
      } catch (const std::exception& error) {
        closed = short_message(error);
        current->abort();
        return;
      }
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  int peer = 0;
  std::mutex mutex;  // of what follows, and of calls of `gloo`
  std::condition_variable_any wake;
  Work current;  // a transfer of kProbedBytes or more
  uint64_t count = 0;
  std::optional<std::string> closed;
  std::jthread prober;  // the last member: it uses the others
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
    auto backend = std::make_unique<Backend>(std::min(kProbeInterval, options.timeout / 4));
    backend->peer = 1 - options.side;
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
  int& count = is_send ? num_sent_ : num_received_;
  const int tag = count++ & kTagMask;
  Status result;
  try {
    std::vector<at::Tensor> tensors{tensor};
    Backend::Work work;
    {
      const std::lock_guard lock(backend_->mutex);
      work = is_send ? backend_->gloo->send(tensors, backend_->peer, tag)
                     : backend_->gloo->recv(tensors, backend_->peer, tag);
      if (tensor.nbytes() >= kProbedBytes) backend_->current = work;
      ++backend_->count;
    }
    const std::stop_callback wake(stop, [&work] { work->abort(); });
    const bool is_done = work->wait(options_.timeout);
    const std::lock_guard lock(backend_->mutex);
    backend_->current.reset();
    if (!is_done)
      result =
          backend_->closed ? lost(*backend_->closed) : Status(StatusCode::kCancelled, "stopped");
  } catch (const std::exception& error) {
    result = lost(short_message(error));
  }
  // A transfer that was not completed would wait for the other process.
  if (!result.ok()) backend_.reset();
  return result;
}

}  // namespace stoker::group
