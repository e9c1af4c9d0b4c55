#include "daemon/group/gloo_group.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "daemon/group/closed_listeners.h"
#include "daemon/group/connection_watcher.h"
#include "daemon/group/device_sums.h"
#include "daemon/group/failure_record.h"
#include "daemon/group/hang_detector.h"
#include "daemon/group/ordered_sum.h"
#include "daemon/group/rank_watcher.h"
#include "daemon/group/rendezvous.h"
#include "daemon/group/socket_address.h"
#include "daemon/group/start_checks.h"
#include "daemon/group/tcp_store.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxReplyTimeout{8'000};
static_assert(kMaxReplyTimeout < HangDetector::kGrace);
// For the failure record of a rank whose connection was closed, unless it is known to have exited.
constexpr milliseconds kRecordGrace{3'000};
constexpr milliseconds kStopCheckInterval{100};
constexpr milliseconds kDevicePollInterval{1};
// Longer with more ranks, which load the store.
constexpr milliseconds kMinWatchInterval{1'000};
constexpr milliseconds kConnectionCheckInterval{1'000};
// For a sum of Gloo to complete, or to fail, after the connection of a rank that may have taken part in it was closed.
constexpr milliseconds kClosedGrace{1'000};
constexpr milliseconds kMinPollInterval{20};
constexpr const char* kLoopbackAddress = "127.0.0.1";

Deadline after(milliseconds timeout) { return std::chrono::steady_clock::now() + timeout; }

milliseconds until(Deadline deadline) {
  const auto remaining =
      std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(remaining, milliseconds(1));  // 0 would mean no limit
}

std::string seconds_text(milliseconds timeout) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(timeout).count()) + " s";
}

// Gloo writes to connections that another rank has closed.
bool is_sigpipe_ignored() {
  struct sigaction action {};
  return ::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// The other ranks, from the next one on, so that not all send to the same one first.
std::vector<int> peers_of(const LaunchEnvironment& environment) {
  std::vector<int> peers;
  for (int i = 1; i < environment.world_size; ++i)
    peers.push_back((environment.rank + i) % environment.world_size);
  return peers;
}

// Tags repeat long after their transfers have ended.
int to_tag(uint64_t number) { return static_cast<int>(number & 0x3fffffff); }

class GlooGroup final : public ProcessGroup {
 public:
  // `prefix` is that of the group's keys.
  GlooGroup(const LaunchEnvironment& environment, std::unique_ptr<TcpStore> store,
            const std::string& prefix, c10::intrusive_ptr<c10d::Backend> backend,
            const GroupOptions& options)
      : environment_(environment),
        interface_(options.interface),
        timeout_(options.timeout),
        start_timeout_(options.start_timeout),
        has_exited_(options.has_exited),
        store_(std::move(store)),
        prefix_(prefix),
        keys_(*store_, prefix),
        peers_(peers_of(environment)),
        backend_(std::move(backend)),
        connections_(*backend_, peers_, kConnectionCheckInterval) {}

  int rank() const override { return environment_.rank; }
  int world_size() const override { return environment_.world_size; }
  Status broadcast(const at::Tensor& tensor, int root, const std::stop_token& stop) override;
  Status all_reduce_ordered(const std::vector<at::Tensor>& tensors,
                            const std::stop_token& stop) override;
  Status all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                    const std::stop_token& stop) override;
  Status start_all_reduce(const at::Tensor& tensor) override;
  Status start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends) override;
  Status finish_sums(const std::stop_token& stop) override;
  Status add_devices(const OpenCollectives& open) override;
  Status wait_for_devices(const std::stop_token& stop) override;
  Status check_lost() override;
  Status end_devices(const std::stop_token& stop) override;
  Status check_same(const SharedSettings& settings, const std::stop_token& stop) override;
  Result<std::string> text_of_chief(const std::string& text, const std::stop_token& stop) override;
  Result<std::vector<std::string>> gather(const std::string& text,
                                          const std::stop_token& stop) override;
  Status send_text(const std::string& name, const std::string& text) override {
    return keys_.set(text_key(name, rank()), text);
  }
  Result<std::string> receive_text(const std::string& name, int of_rank) override;
  Status check_rank(int rank) override;
  Status check_newest() override { return group::check_newest(*store_, prefix_); }
  std::string name_of(int rank) override { return describe_rank(keys_, environment_, rank); }
  bool is_leaving() const override { return is_leaving_; }
  void report_failure(const Status& reason) override;

 private:
  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    int peer = 0;
  };
  // Transfers of a collective that are awaited together.
  struct Phase {
    Deadline deadline;
    uint64_t first_tag = 0;  // of the tensors between two ranks, equal on all ranks
    std::vector<Transfer> transfers;
  };
  // A tensor of a sum: each rank sums one part of it.
  struct Summand {
    at::Tensor flat;
    at::Tensor own;                 // the part that this rank sums
    std::vector<at::Tensor> parts;  // that part of all ranks, of which the own is `own`
  };
  // A sum that has been started.
  struct Scattered {
    Phase exchange;
    Summand summand;
  };

  static std::string text_key(const std::string& name, int rank) {
    return "named/" + name + "/" + std::to_string(rank);
  }
  StartWait start_wait() {
    return {.deadline = after(start_timeout_),
            .has_exited = has_exited_,
            .find_closed = [this](int rank) { return connections_.find_closed(rank); },
            .lose = [this](int rank, const std::string& reason) { return lose(rank, reason); }};
  }
  Status begin_collective();
  Status call_device(const std::function<void()>& collective);
  Status catch_loss(const std::function<void()>& call);
  milliseconds watch_interval() const { return kMinWatchInterval + milliseconds(world_size()); }
  Status wait_for_device(Deadline deadline, const std::string& late, const std::stop_token& stop);
  Phase phase(size_t tensors, Deadline deadline);
  // `index`: of the tensors of the phase.
  Status send(Phase& in, const at::Tensor& tensor, int peer, size_t index = 0);
  Status receive(Phase& in, const at::Tensor& tensor, int peer, size_t index = 0);
  Status wait_for_each(const Phase& all, const std::stop_token& stop, int& failed_peer);
  Status wait_for(Phase& all, const std::stop_token& stop);
  void close();
  void close(Phase& last);
  at::Tensor part_of(const at::Tensor& flat, int of_rank) const;
  Summand make_summand(const at::Tensor& tensor, const at::Tensor& own, at::Tensor& scratch) const;
  static void sum(const Summand& of);
  Status finish_all_reduces(const std::stop_token& stop);
  std::optional<RankWatcher::LostRank> find_closed_peer();
  Status lose(int peer, const std::string& reason);
  Status lose(Phase& last, int peer, const std::string& reason);

  // Constant after construction.
  const LaunchEnvironment environment_;
  const std::string interface_;
  const milliseconds timeout_;
  const milliseconds start_timeout_;
  const HasExited has_exited_;
  const std::unique_ptr<TcpStore> store_;
  const std::string prefix_;
  PrefixedStore keys_;
  const std::vector<int> peers_;
  // Of the thread that uses the group.
  c10::intrusive_ptr<c10d::Backend> backend_;            // null after a failure
  ConnectionWatcher connections_;                        // for any thread
  Status lost_;                                          // that failure, if another rank was lost
  std::vector<at::Tensor> scratch_;                      // by tensor of all_reduce_ordered()
  std::vector<at::Tensor> scattered_scratch_;            // by sum that is started
  std::vector<c10::intrusive_ptr<c10d::Work>> started_;  // by start_all_reduce()
  std::vector<Scattered> scattered_;                     // by start_reduce_scatter()
  uint64_t collectives_ = 0;
  uint64_t tags_ = 0;  // used so far
  uint64_t store_collectives_ = 0;
  std::atomic<bool> is_leaving_{false};  // for any thread
  std::unique_ptr<DeviceSums> maybe_devices_;
  // Of groups with devices, which the thread of the watcher uses.
  std::unique_ptr<TcpStore> maybe_watcher_store_;
  std::optional<PrefixedStore> maybe_watcher_keys_;
  std::unique_ptr<RankWatcher> maybe_watcher_;
};

Status GlooGroup::begin_collective() {
  if (!backend_ && !lost_.ok()) return lost_;
  if (!backend_) return Status(StatusCode::kPeerLost, "the group has ended after an earlier error");
  ++collectives_;
  return check_lost();
}

GlooGroup::Phase GlooGroup::phase(size_t tensors, Deadline deadline) {
  const uint64_t first_tag = tags_;
  tags_ += tensors;
  return {.deadline = deadline, .first_tag = first_tag, .transfers = {}};
}

// Posting fails if the connection is closed already.
Status GlooGroup::send(Phase& in, const at::Tensor& tensor, int peer, size_t index) {
  if (tensor.numel() == 0) return {};
  try {
    std::vector<at::Tensor> tensors{tensor};
    in.transfers.push_back({backend_->send(tensors, peer, to_tag(in.first_tag + index)), peer});
    return {};
  } catch (const std::exception& error) {
    return lose(in, peer, short_message(error));
  }
}

Status GlooGroup::receive(Phase& in, const at::Tensor& tensor, int peer, size_t index) {
  if (tensor.numel() == 0) return {};
  try {
    std::vector<at::Tensor> tensors{tensor};
    in.transfers.push_back({backend_->recv(tensors, peer, to_tag(in.first_tag + index)), peer});
    return {};
  } catch (const std::exception& error) {
    return lose(in, peer, short_message(error));
  }
}

// Each transfer is awaited separately, so that an error is that of one peer: kPeerLost and
// `failed_peer`.
Status GlooGroup::wait_for_each(const Phase& all, const std::stop_token& stop, int& failed_peer) {
  const std::stop_callback wake(stop, [&all] {
    for (const Transfer& transfer : all.transfers) transfer.work->abort();
  });
  for (const Transfer& transfer : all.transfers) {
    try {
      if (!connections_.wait(*transfer.work, transfer.peer, until(all.deadline)))  // aborted
        return Status(StatusCode::kCancelled, "stopped in a collective");
    } catch (const std::exception& error) {
      failed_peer = transfer.peer;
      return Status(StatusCode::kPeerLost, short_message(error));
    }
  }
  return {};
}

Status GlooGroup::wait_for(Phase& all, const std::stop_token& stop) {
  int failed_peer = 0;
  const Status completed = wait_for_each(all, stop, failed_peer);
  if (completed.code() == StatusCode::kPeerLost) return lose(all, failed_peer, completed.message());
  if (!completed.ok())
    close(all);
  else
    all.transfers.clear();  // or they keep the connections open when a later phase fails
  return completed;
}

// ---- collectives ---------------------------------------------------------------------------------

// Binomial tree: in round k, the 2^k ranks that have the tensor send it to as many others.
Status GlooGroup::broadcast(const at::Tensor& tensor, int root, const std::stop_token& stop) {
  assert(root >= 0 && root < world_size());
  if (!tensor.is_contiguous()) {  // such as weights in channels_last
    const at::Tensor copy = tensor.detach().contiguous();
    STOKER_RETURN_IF_ERROR(broadcast(copy, root, stop));
    if (rank() != root) tensor.detach().copy_(copy);
    return {};
  }
  STOKER_RETURN_IF_ERROR(begin_collective());
  if (!tensor.is_cpu()) {
    STOKER_RETURN_IF_ERROR(call_device([&] { maybe_devices_->broadcast(tensor.detach(), root); }));
    // Before the first step, whose exchange of records finds ranks that are lost.
    return wait_for_device(after(start_timeout_),
                           "no broadcast between GPUs within " + seconds_text(start_timeout_),
                           stop);
  }
  const at::Tensor flat = tensor.detach().view({-1});
  const int world = world_size();
  const int position = (rank() - root + world) % world;
  const auto rank_at = [=](int at) { return (at + root) % world; };
  const Deadline deadline = after(timeout_);
  int distance = 1;
  while (distance <= position) distance *= 2;
  Phase forwarding = phase(1, deadline);
  if (position > 0) {
    Phase receipt = forwarding;
    STOKER_RETURN_IF_ERROR(receive(receipt, flat, rank_at(position - distance / 2)));
    STOKER_RETURN_IF_ERROR(wait_for(receipt, stop));
  }
  for (; position + distance < world; distance *= 2)
    STOKER_RETURN_IF_ERROR(send(forwarding, flat, rank_at(position + distance)));
  return wait_for(forwarding, stop);
}

at::Tensor GlooGroup::part_of(const at::Tensor& flat, int of_rank) const {
  const int64_t begin = flat.numel() * of_rank / world_size();
  return flat.narrow(0, begin, flat.numel() * (of_rank + 1) / world_size() - begin);
}

// `scratch`: reused in each step, and allocated when it is too small.
GlooGroup::Summand GlooGroup::make_summand(const at::Tensor& flat, const at::Tensor& own,
                                           at::Tensor& scratch) const {
  Summand made{.flat = flat, .own = own, .parts = {}};
  const int64_t size = own.numel();
  const int64_t elements = size * world_size();
  if (!scratch.defined() || scratch.scalar_type() != flat.scalar_type() ||
      scratch.numel() < elements)
    scratch = at::empty({elements}, flat.options());
  for (int peer = 0; peer < world_size(); ++peer)
    made.parts.push_back(peer == rank() ? own : scratch.narrow(0, size * peer, size));
  return made;
}

void GlooGroup::sum(const Summand& of) {
  const at::Tensor& sum = sum_ordered(of.parts);
  if (!sum.is_same(of.own)) of.own.copy_(sum);
}

// Each rank sums one part of each tensor, and sends the sum to all.
Status GlooGroup::all_reduce_ordered(const std::vector<at::Tensor>& tensors,
                                     const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(begin_collective());
  if (!tensors.empty() && !tensors.front().is_cpu())
    return call_device([&] { maybe_devices_->all_reduce_ordered(tensors); });
  if (scratch_.size() < tensors.size()) scratch_.resize(tensors.size());
  std::vector<Summand> summands;
  for (const at::Tensor& tensor : tensors) {
    assert(tensor.is_cpu() && tensor.is_contiguous());
    const at::Tensor flat = tensor.detach().view({-1});
    summands.push_back(make_summand(flat, part_of(flat, rank()), scratch_[summands.size()]));
  }

  const Deadline deadline = after(timeout_);
  Phase exchange = phase(tensors.size(), deadline);
  for (const int peer : peers_) {
    for (size_t k = 0; k < summands.size(); ++k) {
      STOKER_RETURN_IF_ERROR(
          receive(exchange, summands[k].parts[static_cast<size_t>(peer)], peer, k));
      STOKER_RETURN_IF_ERROR(send(exchange, part_of(summands[k].flat, peer), peer, k));
    }
  }
  STOKER_RETURN_IF_ERROR(wait_for(exchange, stop));

  for (const Summand& each : summands) sum(each);

  Phase distribution = phase(tensors.size(), deadline);
  for (const int peer : peers_) {
    for (size_t k = 0; k < summands.size(); ++k) {
      STOKER_RETURN_IF_ERROR(receive(distribution, part_of(summands[k].flat, peer), peer, k));
      STOKER_RETURN_IF_ERROR(send(distribution, summands[k].own, peer, k));
    }
  }
  return wait_for(distribution, stop);
}

Status GlooGroup::all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                             const std::stop_token& stop) {
  assert(flat.is_contiguous() && flat.dim() == 1 && ends.back() == flat.numel());
  STOKER_RETURN_IF_ERROR(begin_collective());
  if (!flat.is_cpu()) return call_device([&] { maybe_devices_->all_gather(flat, ends); });
  const at::Tensor own = part_of_rank(flat, ends, rank());
  Phase exchange = phase(1, after(timeout_));
  for (const int peer : peers_) {
    STOKER_RETURN_IF_ERROR(receive(exchange, part_of_rank(flat, ends, peer), peer));
    STOKER_RETURN_IF_ERROR(send(exchange, own, peer));
  }
  return wait_for(exchange, stop);
}

Status GlooGroup::start_all_reduce(const at::Tensor& tensor) {
  assert(tensor.is_contiguous());
  STOKER_RETURN_IF_ERROR(begin_collective());
  if (!tensor.is_cpu())
    return call_device([&] { maybe_devices_->start_all_reduce(tensor.detach()); });
  try {
    std::vector<at::Tensor> tensors{tensor.detach()};
    c10d::AllreduceOptions options;
    options.timeout = timeout_;  // that of the backend ends with the start
    started_.push_back(backend_->allreduce(tensors, options));
    return {};
  } catch (const std::exception& error) {
    return lose(kUnknownRank, short_message(error));
  }
}

// The first half of all_reduce_ordered(): Gloo's own reduce-scatter has parts of one size only, and was
// slower than its all-reduce. Gloo's threads exchange the parts during the computation that follows.
Status GlooGroup::start_reduce_scatter(const at::Tensor& tensor, const std::vector<int64_t>& ends) {
  assert(tensor.is_contiguous() && tensor.dim() == 1 && ends.back() == tensor.numel());
  STOKER_RETURN_IF_ERROR(begin_collective());
  const at::Tensor flat = tensor.detach();
  if (!flat.is_cpu()) return call_device([&] { maybe_devices_->start_reduce_scatter(flat, ends); });
  const size_t index = scattered_.size();
  if (scattered_scratch_.size() <= index) scattered_scratch_.resize(index + 1);
  scattered_.push_back(
      {.exchange = phase(1, after(timeout_)),
       .summand = make_summand(flat, part_of_rank(flat, ends, rank()), scattered_scratch_[index])});
  auto& [exchange, summand] = scattered_.back();
  for (const int peer : peers_) {
    STOKER_RETURN_IF_ERROR(receive(exchange, summand.parts[static_cast<size_t>(peer)], peer));
    STOKER_RETURN_IF_ERROR(send(exchange, part_of_rank(flat, ends, peer), peer));
  }
  return {};
}

// Until an error they stay in scattered_, so that lose() closes all of them.
Status GlooGroup::finish_sums(const std::stop_token& stop) {
  if (maybe_devices_ && backend_)
    STOKER_RETURN_IF_ERROR(call_device([&] { maybe_devices_->finish_sums(); }));
  STOKER_RETURN_IF_ERROR(finish_all_reduces(stop));
  if (!backend_ && !scattered_.empty()) return begin_collective();
  const Deadline deadline = after(timeout_);
  for (auto& [exchange, summand] : scattered_) {
    exchange.deadline = deadline;
    STOKER_RETURN_IF_ERROR(wait_for(exchange, stop));
    sum(summand);
  }
  scattered_.clear();
  return {};
}

// Waits in parts, so that a stop is noticed. wait() also throws when its own timeout has passed.
Status GlooGroup::finish_all_reduces(const std::stop_token& stop) {
  const Deadline deadline = after(timeout_);
  Deadline closed_since = kNoDeadline;  // a connection
  if (started_.empty()) return {};
  if (!backend_) return begin_collective();
  for (const auto& work : started_) {
    while (true) {
      try {
        work->wait(kStopCheckInterval);
        break;
      } catch (const std::exception& error) {
        // A sum that completed after the timeout of wait() is a success.
        if (work->isCompleted() && !work->isSuccess())
          return lose(kUnknownRank, short_message(error));
      }
      if (stop.stop_requested()) {
        close();
        return Status(StatusCode::kCancelled, "stopped in a collective");
      }
      const Deadline now = std::chrono::steady_clock::now();
      if (const auto closed = find_closed_peer()) {
        closed_since = std::min(closed_since, now);
        if (now - closed_since >= kClosedGrace) return lose(closed->rank, closed->reason);
      }
      if (now >= deadline)
        return lose(kUnknownRank, "no sum of gradients within " + seconds_text(timeout_));
    }
  }
  started_.clear();
  return {};
}

std::optional<RankWatcher::LostRank> GlooGroup::find_closed_peer() {
  for (const int peer : peers_)
    if (auto reason = connections_.find_closed(peer))
      return RankWatcher::LostRank{.rank = peer, .reason = *std::move(reason)};
  return std::nullopt;
}

// ---- devices -------------------------------------------------------------------------------------

Status GlooGroup::add_devices(const OpenCollectives& open) {
  STOKER_RETURN_IF_ERROR(begin_collective());
  const CollectivesOptions options{.store = &store_->c10d_store(),
                                   .prefix = prefix_,
                                   .rank = rank(),
                                   .world_size = world_size(),
                                   .timeout = timeout_,
                                   .is_single_node = environment_.is_single_node(),
                                   .interface = interface_};
  STOKER_RETURN_IF_ERROR(call_device(
      [&] { maybe_devices_ = std::make_unique<DeviceSums>(open(options), world_size()); }));
  auto connected = store_->connect_again();
  if (!connected.ok()) return {};  // the time limits find lost ranks, too
  maybe_watcher_store_ = *std::move(connected);
  maybe_watcher_keys_.emplace(*maybe_watcher_store_, prefix_);
  maybe_watcher_ = std::make_unique<RankWatcher>(
      *maybe_watcher_keys_, rank(), [this] { return find_closed_peer(); }, watch_interval(),
      [this] { maybe_devices_->abort(); });
  return {};
}

Status GlooGroup::check_lost() {
  const auto lost = maybe_watcher_ ? maybe_watcher_->lost() : std::nullopt;
  if (!lost) return {};
  if (!backend_) return lost_;
  return lose(lost->rank, lost->reason);
}

Status GlooGroup::call_device(const std::function<void()>& collective) {
  if (maybe_watcher_) maybe_watcher_->expect_ranks(true);
  return catch_loss(collective);
}

Status GlooGroup::catch_loss(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const std::exception& error) {
    STOKER_RETURN_IF_ERROR(check_lost());  // which has ended it
    return lose(kUnknownRank, short_message(error));
  }
}

// `late`: the reason if they are not complete at the deadline.
Status GlooGroup::wait_for_device(Deadline deadline, const std::string& late,
                                  const std::stop_token& stop) {
  bool is_complete = false;
  while (true) {
    STOKER_RETURN_IF_ERROR(catch_loss([&] { is_complete = maybe_devices_->is_complete(); }));
    // Then a rank may leave, and what has been computed is saved nevertheless.
    if (is_complete && maybe_watcher_) maybe_watcher_->expect_ranks(false);
    STOKER_RETURN_IF_ERROR(check_lost());
    if (is_complete) return {};
    if (stop.stop_requested()) {
      close();
      return Status(StatusCode::kCancelled, "stopped in a collective");
    }
    if (std::chrono::steady_clock::now() >= deadline) return lose(kUnknownRank, late);
    std::this_thread::sleep_for(kDevicePollInterval);
  }
}

Status GlooGroup::wait_for_devices(const std::stop_token& stop) {
  if (!maybe_devices_ || !backend_) return {};
  return wait_for_device(after(timeout_),
                         "the GPU waits for others since " + seconds_text(timeout_), stop);
}

// An abort ends collectives of other ranks that still read from this one. Each rank must thus know that
// all have completed theirs.
Status GlooGroup::end_devices(const std::stop_token& stop) {
  if (!maybe_devices_ || !backend_) return {};
  const Status complete = wait_for_devices(stop);
  if (maybe_watcher_) maybe_watcher_->stop();
  Status met = complete.ok() ? gather("devices", stop).status() : complete;
  if (met.ok()) met = text_of_chief("devices", stop).status();
  maybe_devices_->abort();
  return met;
}

// ---- exchanges through the store -----------------------------------------------------------------

Status GlooGroup::check_same(const SharedSettings& settings, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(begin_collective());
  Status same = check_same_settings(keys_, environment_, std::to_string(++store_collectives_),
                                    settings, start_wait(), stop);
  if (same.code() == StatusCode::kMismatch) {
    close();
    leave_store(keys_, environment_, rank(), has_exited_);
  }
  return same;
}

Result<std::string> GlooGroup::text_of_chief(const std::string& text, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(begin_collective());
  return receive_from_chief(keys_, environment_, std::to_string(++store_collectives_), text,
                            start_wait(), stop);
}

Result<std::vector<std::string>> GlooGroup::gather(const std::string& text,
                                                   const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(begin_collective());
  return gather_at_chief(keys_, environment_, std::to_string(++store_collectives_), text,
                         start_wait(), stop);
}

Result<std::string> GlooGroup::receive_text(const std::string& name, int of_rank) {
  STOKER_ASSIGN_OR_RETURN(const auto text, keys_.get(text_key(name, of_rank)));
  return text.value_or("");
}

Status GlooGroup::check_rank(int rank) {
  const auto closed = connections_.find_closed(rank);
  STOKER_RETURN_IF_ERROR(check_failed(keys_, environment_));
  STOKER_RETURN_IF_ERROR(check_killed(keys_, environment_, has_exited_, rank));
  if (!closed) return {};
  // One that leaves because it has lost another rank has a record, and may still write its part of a checkpoint.
  STOKER_ASSIGN_OR_RETURN(const auto record, read_failure_record(keys_, rank));
  if (record) return {};
  return Status(StatusCode::kPeerLost, name_of(rank) + " exited or cannot be reached: " + *closed);
}

// ---- failures ------------------------------------------------------------------------------------

// So that the other ranks notice. Transfers would keep the connections open. The device would wait for the other ranks
// forever, and this process for the device.
void GlooGroup::close(Phase& last) {
  const bool has_sums =
      std::ranges::any_of(started_, [](const auto& work) { return !work->isCompleted(); });
  started_.clear();
  last.transfers.clear();
  for (Scattered& each : scattered_) each.exchange.transfers.clear();
  connections_.close();
  // Its destructor waits for its threads, which can wait for other ranks until the timeout.
  if (has_sums)
    (void)backend_.release();
  else
    backend_.reset();
  if (maybe_devices_) maybe_devices_->abort();
}

void GlooGroup::close() {
  Phase none;
  close(none);
}

// The error of a collective that failed because of a peer. `last`: its transfers.
Status GlooGroup::lose(Phase& last, int peer, const std::string& reason) {
  const std::string noticed =
      "; rank " + std::to_string(rank()) + " lost " +
      (peer == kUnknownRank ? "another rank" : "rank " + std::to_string(peer)) + " in collective " +
      std::to_string(collectives_) + ": " + reason;
  const Status written =
      write_failure_record(keys_, {.rank = rank(), .lost_rank = peer, .reason = reason});
  // Ranks whose host waits for its GPU notice nothing else. That this one leaves is certain, and its record says why.
  if (maybe_devices_) announce_loss(keys_, rank());
  close(last);
  // Watchers write records, too.
  const milliseconds grace =
      kRecordGrace + (maybe_devices_ ? 2 * watch_interval() : milliseconds(0));
  const auto has_exited = [this](int rank) {
    return is_known_to_have_exited(keys_, rank, has_exited_);
  };
  const auto failed = written.ok() ? find_failed_rank(keys_, peer, world_size(), grace, has_exited)
                                   : Result<std::optional<FailedRank>>(written);
  if (!failed.ok()) {
    lost_ =
        Status(StatusCode::kPeerLost, describe_lost_store(environment_, failed.status()) + noticed);
    return lost_;
  }
  const std::string cause =
      *failed ? describe_failure(keys_, environment_, **failed)
              : std::string("ranks lost their connections; check the network between them") +
                    (maybe_devices_ ? ", and their GPUs" : "");
  is_leaving_ = true;
  leave_store(keys_, environment_, *failed ? (*failed)->rank : kUnknownRank, has_exited_);
  lost_ =
      Status(StatusCode::kPeerLost, cause + noticed, *failed ? (*failed)->code : StatusCode::kOk);
  return lost_;
}

Status GlooGroup::lose(int peer, const std::string& reason) {
  Phase none;
  return lose(none, peer, reason);
}

void GlooGroup::report_failure(const Status& reason) {
  if (!backend_) return;  // the other ranks know already
  announce_failure(keys_, environment_, reason);
  close();
  leave_store(keys_, environment_, rank(), has_exited_);
}

// ---- opening -------------------------------------------------------------------------------------

Status loopback_error(const LaunchEnvironment& environment, const std::string& address) {
  return Status(StatusCode::kInvalidArgument,
                "rank 0's host " + environment.store_host + " is " + address + " on " +
                    host_name() +
                    ", which other nodes cannot reach; set MASTER_ADDR to an address of rank 0 in "
                    "the network of the nodes");
}

Result<std::unique_ptr<TcpStore>> open_store(const LaunchEnvironment& environment,
                                             const GroupOptions& options, Deadline deadline,
                                             const std::stop_token& stop) {
  const bool is_served_by_chief = !environment.launcher_serves_store;
  const bool is_local = environment.is_single_node() && is_served_by_chief;
  const std::string host = is_local ? kLoopbackAddress : environment.store_host;
  TcpStoreOptions store_options{
      .prefix = "stoker",
      .server = is_served_by_chief ? environment.name_of(0)
                                   : std::string(to_string(environment.launcher)),
      .reply_timeout = std::min(options.timeout, kMaxReplyTimeout),
      .poll_interval = kMinPollInterval + milliseconds(environment.world_size) / 4};
  if (is_served_by_chief) {
    STOKER_ASSIGN_OR_RETURN(store_options.secret, options.secret());
  }
  if (environment.is_chief() && is_served_by_chief) {
    auto found = listen_on(host, environment.store_port);
    if (found.status().code() == StatusCode::kBusy)
      return Status(StatusCode::kBusy, found.status().message() +
                                           "; set MASTER_PORT to a free port, the same for all "
                                           "ranks");
    if (found.status().code() == StatusCode::kInvalidArgument)
      return Status(
          StatusCode::kInvalidArgument,
          found.status().message() + ", where rank 0 runs; set MASTER_ADDR to the host of rank 0");
    STOKER_ASSIGN_OR_RETURN(auto listening, std::move(found));
    if (!is_local && is_loopback(listening.address))
      return loopback_error(environment, listening.address);
    if (options.on_listening) options.on_listening(listening.address, listening.port);
    return TcpStore::serve(std::move(listening), store_options);
  }
  StartDelayLog delay;
  const auto address =
      wait_for_listener(host, environment.store_port, deadline, stop, [&](const Status&) -> Status {
        delay.check([&] { return store_options.server; });
        return {};
      });
  if (address.status().code() == StatusCode::kTimedOut)
    return Status(StatusCode::kPeerLost,
                  "cannot connect to the group's store, which " + store_options.server +
                      " serves, within " + seconds_text(options.start_timeout) + ": " +
                      address.status().message() + "; see the log of " + store_options.server);
  if (!address.ok()) return address.status();
  return TcpStore::connect(*address, environment.store_port, store_options);
}

// Address on which this rank listens for the others.
Result<std::string> choose_address(const LaunchEnvironment& environment,
                                   const GroupOptions& options, const std::string& store_address) {
  if (options.interface == "auto" && environment.is_single_node())
    return std::string(kLoopbackAddress);
  STOKER_ASSIGN_OR_RETURN(auto address, own_address(options.interface, store_address));
  if (environment.is_single_node() || !is_loopback(address)) return address;
  if (options.interface == "auto") return loopback_error(environment, address);
  return Status(StatusCode::kInvalidArgument,
                "distributed.interface: " + options.interface + " has the address " + address +
                    " on " + host_name() +
                    ", which other nodes cannot reach; name an interface in the network of the "
                    "nodes");
}

struct GlooOptions {
  c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options;
  ClosedListeners listeners;
};

// With a device that listens on the address. kIoError: the failure is this rank's, not that of a connection.
Result<GlooOptions> gloo_options(const LaunchEnvironment& environment, const std::string& address,
                                 milliseconds timeout) {
  try {
    auto gloo = c10d::ProcessGroupGloo::Options::create(timeout);
    gloo->threads = 2;  // of start_all_reduce()
    auto listeners = ClosedListeners::open(address, [&] {
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    });
    return GlooOptions{.options = std::move(gloo), .listeners = std::move(listeners)};
  } catch (const std::exception& error) {
    return Status(StatusCode::kIoError, "rank " + std::to_string(environment.rank) +
                                            " cannot listen on " + address + ": " +
                                            short_message(error));
  }
}

Result<c10::intrusive_ptr<c10d::Backend>> connect_ranks(const LaunchEnvironment& environment,
                                                        const TcpStore& store,
                                                        const std::string& prefix,
                                                        const std::string& address,
                                                        GlooOptions gloo) {
  try {
    auto keys = c10::make_intrusive<c10d::PrefixStore>(
        prefix + "gloo",
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.c10d_store()));
    c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<c10d::ProcessGroupGloo>(
        std::move(keys), environment.rank, environment.world_size, std::move(gloo.options));
    gloo.listeners.close();  // all ranks are connected to this one
    return backend;
  } catch (const std::exception& error) {
    return Status(StatusCode::kPeerLost, "rank " + std::to_string(environment.rank) +
                                             " cannot connect from " + address +
                                             " to all other ranks: " + short_message(error));
  }
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> open_group(const LaunchEnvironment& environment,
                                                 const GroupOptions& options,
                                                 const std::stop_token& stop) {
  if (environment.world_size == 1)
    return std::unique_ptr<ProcessGroup>(std::make_unique<SingleProcessGroup>());
  assert(is_sigpipe_ignored());
  const Deadline deadline = after(options.start_timeout);
  STOKER_ASSIGN_OR_RETURN(auto store, open_store(environment, options, deadline, stop));
  const auto address = choose_address(environment, options, store->address());
  const StartRecord own{.host = host_name(), .pid = ::getpid()};
  const Status& ready = options.ready.ok() ? address.status() : options.ready;
  STOKER_ASSIGN_OR_RETURN(const std::string prefix,
                          join_group(*store, environment, options.run_id, own, ready,
                                     options.has_exited, deadline, stop));
  PrefixedStore keys(*store, prefix);
  auto gloo = gloo_options(environment, *address, std::min(options.timeout, until(deadline)));
  if (!gloo.ok()) return report_start_failure(keys, environment, gloo.status(), options.has_exited);
  auto backend = connect_ranks(environment, *store, prefix, *address, *std::move(gloo));
  if (!backend.ok())
    return report_connect_failure(keys, environment, backend.status(), options.has_exited,
                                  kRecordGrace);
  if (const Status announced = announce_connected(keys, environment.rank); !announced.ok())
    return Status(StatusCode::kPeerLost, describe_lost_store(environment, announced));
  return std::unique_ptr<ProcessGroup>(std::make_unique<GlooGroup>(
      environment, std::move(store), prefix, *std::move(backend), options));
}

}  // namespace stoker::group
