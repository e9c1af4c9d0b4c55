#include "daemon/parameter_server/replay_connection.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "daemon/train/optimizer.h"

namespace stoker::parameter_server {
namespace {

at::Tensor packed_copy(const std::vector<at::Tensor>& tensors) {
  const at::Tensor bytes = at::empty({packed_bytes(tensors)}, at::kByte);
  pack(tensors, bytes);
  return bytes;
}

}  // namespace

ReplayConnection::ReplayConnection(ReplayOrder order, std::vector<ServerPart> parts,
                                   std::vector<VariableStore> stores,
                                   std::function<bool(uint64_t step)> is_recorded)
    : order_(std::move(order)), is_recorded_(std::move(is_recorded)) {
  assert(parts.size() == stores.size() && parts.size() == order_.num_servers());
  for (size_t i = 0; i < parts.size(); ++i)
    servers_.push_back({.part = std::move(parts[i]),
                        .store = std::move(stores[i]),
                        .read_later = {},
                        .gradients = {},
                        .last_parameters = {},
                        .last_state = {}});
}

Status ReplayConnection::initialize(uint64_t step, const Sums& sums, const std::stop_token&) {
  assert(step == order_.step(0));
  for (Server& server : servers_) {
    unpack(packed_copy(server.part.parameters), server.store.parameters());
    unpack(packed_copy(server.part.state), server.store.state());
    server.store.initialize(step);
  }
  interval_ = sums;
  is_initialized_ = true;
  return {};
}

// ---- updates -------------------------------------------------------------------------------------

// Applies what can be applied. kWait at each step that the chief can save: those where a replay can begin,
// and the last one.
Result<ServerConnection::Claimed> ReplayConnection::claim(const std::stop_token&) {
  if (!is_initialized_) return Claimed{.reply = ClaimReply::kInitialize};
  while (true) {
    const uint64_t step = order_.step(0);
    if (can_save() && offered_step_ != step) {
      offered_step_ = step;
      if (step == order_.last_complete_step()) keep_last_state();
      return Claimed{};
    }
    const auto server = order_.next_server();
    if (!server) break;
    STOKER_RETURN_IF_ERROR(apply_next(*server));
  }
  current_ = order_.next_gradient();
  if (current_)
    return Claimed{
        .reply = ClaimReply::kGranted, .ticket = order_.ticket(*current_), .step = order_.step(0)};
  for (size_t i = 0; i < servers_.size(); ++i)
    if (order_.step(i) < order_.last_complete_step())
      return Status(StatusCode::kCorrupt, "the update logs contradict each other after step " +
                                              std::to_string(order_.step(i)));
  has_ended_ = true;
  return Claimed{.reply = ClaimReply::kEnded, .step = order_.last_complete_step()};
}

bool ReplayConnection::can_save() const {
  return order_.can_begin() ||
         (order_.is_complete() && order_.step(0) == order_.last_complete_step());
}

// Nothing else needs them: then the chief saves at the end without them.
void ReplayConnection::keep_last_state() {
  for (Server& server : servers_) {
    server.last_parameters = packed_copy(server.store.parameters());
    server.last_state = packed_copy(server.store.state());
  }
  last_interval_ = interval_;
}

Status ReplayConnection::apply_next(size_t index) {
  Server& server = servers_[index];
  const uint64_t before = order_.step(index);
  if (order_.is_read(index, before))
    server.read_later[before] = packed_copy(server.store.parameters());
  const size_t gradient = order_.next_gradient_of(index);
  order_.apply_next(index);
  const auto& [bytes, norm, count] = server.gradients.at(gradient);
  STOKER_RETURN_IF_ERROR(server.store.apply(order_.ticket(gradient), bytes, norm, count));
  server.gradients.erase(gradient);
  if (index != 0) return {};
  add_step(interval_, sums_.at(gradient));
  sums_.erase(gradient);
  if (is_recorded_(before + 1))
    records_.push_back({.step = before + 1, .sums = std::exchange(interval_, {})});
  return {};
}

// The parameters from which the current gradient was computed.
Status ReplayConnection::pull(uint64_t, const std::stop_token&) {
  const auto read_steps = order_.read_steps(current_.value());
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    const auto earlier = server.read_later.find(read_steps[i]);
    unpack(earlier != server.read_later.end() ? earlier->second
                                              : packed_copy(server.store.parameters()),
           server.part.parameters);
  }
  return {};
}

Result<PushResult> ReplayConnection::push(uint64_t, uint64_t, const Sums& sums,
                                          const std::vector<at::Tensor>& gradients,
                                          const std::stop_token&) {
  const size_t index = std::exchange(current_, std::nullopt).value();
  order_.finish(index);
  for (size_t i = 0; i < servers_.size(); ++i) {
    Server& server = servers_[i];
    std::erase_if(server.read_later,
                  [&](const auto& kept) { return !order_.is_read(i, kept.first); });
    if (!order_.is_applied_by(index, i)) continue;
    server.gradients[index] = {.bytes = packed_copy(server.part.own_of(gradients)),
                               .norm = sums.norm,
                               .count = sums.count};
  }
  if (order_.is_applied_by(index, 0)) sums_[index] = sums;
  return PushResult::kAccepted;
}

// ---- saves and records ---------------------------------------------------------------------------

Result<std::optional<std::pair<uint64_t, Sums>>> ReplayConnection::begin_save(
    const std::stop_token&) {
  using Begun = std::optional<std::pair<uint64_t, Sums>>;
  if (has_ended_) return Begun({order_.last_complete_step(), last_interval_});
  if (!is_initialized_ || !can_save()) return Begun();
  return Begun({order_.step(0), interval_});
}

Status ReplayConnection::read_state(uint64_t, const std::stop_token&) {
  for (Server& server : servers_) {
    unpack(has_ended_ ? server.last_parameters : packed_copy(server.store.parameters()),
           server.part.parameters);
    unpack(has_ended_ ? server.last_state : packed_copy(server.store.state()), server.part.state);
  }
  return {};
}

Status ReplayConnection::end_save(const std::stop_token&) { return {}; }

// Only up to a step that can be saved.
Result<std::optional<ServerConnection::Record>> ReplayConnection::take_record(
    uint64_t step, uint64_t saved_step, const std::stop_token&) {
  while (!records_.empty() && records_.front().step <= step) records_.pop_front();
  uint64_t common = order_.last_complete_step();
  for (Server& server : servers_) {
    common = std::min(common, server.store.step());
    server.store.forget_norms(saved_step);
  }
  if (records_.empty() || records_.front().step > common) return std::optional<Record>();
  Record record = records_.front();
  size_t count = 0;
  for (const Server& server : servers_) count += server.part.variables.size();
  const at::Tensor norms = at::full({static_cast<int64_t>(count)}, std::nan(""), at::kFloat);
  for (const Server& server : servers_) {
    const auto own = server.store.norms(record.step);
    if (own) put_norms(server.part.variables, *own, norms);
  }
  record.grad_norm = train::Optimizer::norm_of(norms).item<double>();
  return std::optional(record);
}

Status ReplayConnection::keep_alive(const std::stop_token&) { return {}; }

Result<control::TrainerStatus::Cluster> ReplayConnection::read_status(const std::stop_token&) {
  return control::TrainerStatus::Cluster();
}

Status ReplayConnection::end_run(run::RunOutcome, const std::stop_token&) { return {}; }

}  // namespace stoker::parameter_server
