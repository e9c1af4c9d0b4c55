#include "daemon/parameter_server/worker_connection.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>

#include "daemon/parameter_server/variable_store.h"
#include "daemon/train/optimizer.h"
#include "shared/base/deadline.h"

namespace stoker::parameter_server {
namespace {

at::Tensor bytes_for(const std::vector<at::Tensor>& tensors) {
  return at::empty({packed_bytes(tensors)}, at::kByte);
}

Header request_of(Operation operation, uint64_t ticket = 0, uint64_t step = 0,
                  const Sums& sums = {}) {
  return make_header(static_cast<int64_t>(operation), ticket, step, sums);
}

}  // namespace

Result<std::unique_ptr<WorkerConnection>> WorkerConnection::open(const ClusterTask& task,
                                                                 const Meeting& meeting,
                                                                 std::vector<ServerPart> parts,
                                                                 const std::stop_token& stop,
                                                                 bool sums_norms) {
  auto made = std::make_unique<WorkerConnection>();
  made->task_ = task;
  made->sums_norms_ = sums_norms;
  made->keep_alive_interval_ = meeting.timeout / 4;
  const auto worker = static_cast<size_t>(task.index);
  STOKER_ASSIGN_OR_RETURN(
      const auto store,
      group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
  for (size_t i = 0; i < parts.size(); ++i)
    STOKER_RETURN_IF_ERROR(wait_for_task(
        *store, ready_key(i), stop,
        TaskWait(meeting, "ps " + std::to_string(i) + " (" + task.cluster.ps[i] + ")")));
  STOKER_ASSIGN_OR_RETURN(const int64_t life, store->add(life_key(worker), 1));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (stop.stop_requested())
      return Status(StatusCode::kCancelled, "connecting to the parameter servers was stopped");
    Server server;
    STOKER_ASSIGN_OR_RETURN(
        server.store,
        group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
    STOKER_ASSIGN_OR_RETURN(
        server.connection,
        group::PairConnection::open(
            *server.store, {.prefix = connection_prefix(
                                i, {.worker = worker, .life = static_cast<uint64_t>(life)}),
                            .side = 1,
                            .address = meeting.address,
                            .peer = "ps " + std::to_string(i) + " (" + task.cluster.ps[i] + ")",
                            .timeout = meeting.timeout}));
    server.push_bytes = at::empty({packed_gradient_bytes(parts[i].parameters)}, at::kByte);
    server.parameter_bytes = server.push_bytes.narrow(0, 0, packed_bytes(parts[i].parameters));
    server.state_bytes = bytes_for(parts[i].state);
    server.part = std::move(parts[i]);
    made->servers_.push_back(std::move(server));
  }
  return made;
}

Result<Header> WorkerConnection::ask(Server& server, const Header& request,
                                     const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(send_header(*server.connection, request, stop));
  return receive_header(*server.connection, stop);
}

Result<Header> WorkerConnection::ask_first(const Header& request, const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(Header reply, ask(first(), request, stop));
  STOKER_RETURN_IF_ERROR(learn_settings(static_cast<uint64_t>(reply[kVersion]), stop));
  return reply;
}

// Before any of them is asked to update to a step with these settings.
Status WorkerConnection::learn_settings(uint64_t version, const std::stop_token& stop) {
  if (version <= version_) return {};
  for (uint64_t each = version_ + 1; each <= version; ++each) {
    STOKER_ASSIGN_OR_RETURN(const auto text, first().store->get(settings_key(each)));
    STOKER_ASSIGN_OR_RETURN(SettingsVersion settings, parse_settings_version(text.value_or("")));
    settings_.push_back(std::move(settings));
  }
  for (size_t i = 1; i < servers_.size(); ++i)
    STOKER_RETURN_IF_ERROR(
        ask(servers_[i], request_of(Operation::kApplySettings, version), stop).status());
  version_ = version;
  return {};
}

// Server 0 first, which decides: the other servers learn of it even if this worker is lost.
Status WorkerConnection::change_settings(const SettingsVersion& settings,
                                         const std::stop_token& stop) {
  const uint64_t version = version_ + 1;
  STOKER_RETURN_IF_ERROR(first().store->set(settings_key(version), to_json(settings)));
  for (Server& server : servers_)
    STOKER_RETURN_IF_ERROR(
        ask(server, request_of(Operation::kApplySettings, version), stop).status());
  version_ = version;
  return {};
}

Result<WorkerConnection::Claimed> WorkerConnection::claim(const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const Header reply, ask_first(request_of(Operation::kClaim), stop));
  const auto result = static_cast<ClaimReply>(reply[0]);
  if (result == ClaimReply::kWait) STOKER_RETURN_IF_ERROR(keep_alive(stop));
  const int64_t prefetch = result == ClaimReply::kGranted ? sums_of(reply).steps : kNoTicket;
  return Claimed{.reply = result,
                 .ticket = static_cast<uint64_t>(reply[1]),
                 .step = static_cast<uint64_t>(reply[2]),
                 .prefetch = prefetch == kNoTicket ? std::nullopt
                                                   : std::optional(static_cast<uint64_t>(prefetch)),
                 .is_preempted = result == ClaimReply::kEnded && reply[1] != 0};
}

Result<WorkerConnection::Claimed> WorkerConnection::claim_gap(const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const Header reply, ask_first(request_of(Operation::kClaimGap), stop));
  return Claimed{.reply = static_cast<ClaimReply>(reply[0]),
                 .ticket = static_cast<uint64_t>(reply[1]),
                 .step = static_cast<uint64_t>(reply[2])};
}

Status WorkerConnection::keep_alive(const std::stop_token& stop) {
  const auto now = std::chrono::steady_clock::now();
  if (now - kept_alive_at_ < keep_alive_interval_) return {};
  for (Server& server : servers_)
    STOKER_RETURN_IF_ERROR(ask(server, request_of(Operation::kKeepAlive), stop).status());
  kept_alive_at_ = now;
  return {};
}

Status WorkerConnection::pull(uint64_t step, const std::stop_token& stop) {
  if (!has_untrained_) STOKER_RETURN_IF_ERROR(read_untrained(stop));
  STOKER_ASSIGN_OR_RETURN(const double norm, norm_of_step(step, stop));
  for (Server& server : servers_) {
    STOKER_RETURN_IF_ERROR(
        ask(server, request_of(Operation::kPull, 0, step, {.norm = norm}), stop).status());
    STOKER_RETURN_IF_ERROR(server.connection->receive(server.parameter_bytes, stop));
    unpack(server.parameter_bytes, server.part.parameters);
  }
  updated_step_ = std::max(updated_step_, step);
  return {};
}

// The chief has its own.
Status WorkerConnection::read_untrained(const std::stop_token& stop) {
  Server& server = first();
  has_untrained_ = true;
  if (server.part.untrained.empty() || task_.is_chief()) return {};
  STOKER_RETURN_IF_ERROR(ask(server, request_of(Operation::kReadUntrained), stop).status());
  const at::Tensor bytes = bytes_for(server.part.untrained);
  STOKER_RETURN_IF_ERROR(server.connection->receive(bytes, stop));
  unpack(bytes, server.part.untrained);
  return {};
}

int64_t WorkerConnection::num_variables() const {
  size_t count = 0;
  for (const Server& server : servers_) count += server.part.variables.size();
  return static_cast<int64_t>(count);
}

// By which the servers clip in the update to `step`; negative if none needs it. All workers compute the same
// one. A server that has none any more is at a later step, which only follows when all have done this one.
Result<double> WorkerConnection::norm_of_step(uint64_t step, const std::stop_token& stop) {
  constexpr double kNone = -1;
  if (!sums_norms_ || step <= updated_step_) return kNone;
  const at::Tensor norms = at::empty({2, num_variables()}, at::kFloat);
  for (Server& server : servers_) {
    STOKER_ASSIGN_OR_RETURN(const Header reply,
                            ask(server, request_of(Operation::kReadStepNorms, 0, step), stop));
    if (reply[0] == 0) return kNone;
    const at::Tensor own =
        at::empty({2, static_cast<int64_t>(server.part.variables.size())}, at::kFloat);
    STOKER_RETURN_IF_ERROR(server.connection->receive(own, stop));
    for (const int64_t row : {0, 1}) put_norms(server.part.variables, own[row], norms[row]);
  }
  return norm_to_clip_by(norms[0], norms[1]);
}

// Server 0 last: it then knows that all have the gradient.
Result<PushResult> WorkerConnection::push(uint64_t ticket, uint64_t step, const Sums& sums,
                                          const std::vector<at::Tensor>& gradients,
                                          const train::Optimizer::Reached& reached,
                                          const std::stop_token& stop) {
  const Header request = request_of(Operation::kPush, ticket, step, sums);
  Header reply{};
  for (size_t i = servers_.size(); i-- > 0;) {
    Server& server = servers_[i];
    pack_gradients(server.part.own_of(gradients), server.part.own_of(reached), server.push_bytes);
    STOKER_RETURN_IF_ERROR(send_header(*server.connection, request, stop));
    STOKER_RETURN_IF_ERROR(server.connection->send(server.push_bytes, stop));
    STOKER_ASSIGN_OR_RETURN(reply, receive_header(*server.connection, stop));
  }
  return static_cast<PushResult>(reply[0]);
}

Status WorkerConnection::initialize(uint64_t step, const Sums& sums, const std::stop_token& stop) {
  const Header request = request_of(Operation::kInitialize, 0, step, sums);
  for (size_t i = servers_.size(); i-- > 0;) {
    Server& server = servers_[i];
    pack(server.part.parameters, server.parameter_bytes);
    pack(server.part.state, server.state_bytes);
    STOKER_RETURN_IF_ERROR(send_header(*server.connection, request, stop));
    STOKER_RETURN_IF_ERROR(server.connection->send(server.parameter_bytes, stop));
    STOKER_RETURN_IF_ERROR(server.connection->send(server.state_bytes, stop));
    if (i == 0) {
      const at::Tensor untrained = bytes_for(server.part.untrained);
      pack(server.part.untrained, untrained);
      STOKER_RETURN_IF_ERROR(server.connection->send(untrained, stop));
    }
    STOKER_RETURN_IF_ERROR(receive_header(*server.connection, stop).status());
  }
  return {};
}

Result<std::optional<std::pair<uint64_t, Sums>>> WorkerConnection::begin_save(
    const std::stop_token& stop) {
  using Begun = std::optional<std::pair<uint64_t, Sums>>;
  STOKER_ASSIGN_OR_RETURN(const Header reply, ask_first(request_of(Operation::kBeginSave), stop));
  if (reply[0] == 0) return Begun();
  return Begun({static_cast<uint64_t>(reply[2]), sums_of(reply)});
}

Status WorkerConnection::read_state(uint64_t step, const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const double norm, norm_of_step(step, stop));
  for (Server& server : servers_) {
    STOKER_ASSIGN_OR_RETURN(
        const Header reply,
        ask(server, request_of(Operation::kReadState, 0, step, {.norm = norm}), stop));
    STOKER_RETURN_IF_ERROR(server.connection->receive(server.parameter_bytes, stop));
    STOKER_RETURN_IF_ERROR(server.connection->receive(server.state_bytes, stop));
    if (static_cast<uint64_t>(reply[2]) != step)
      return Status(StatusCode::kInternal, "a parameter server is at step " +
                                               std::to_string(reply[2]) + " instead of " +
                                               std::to_string(step));
    unpack(server.parameter_bytes, server.part.parameters);
    unpack(server.state_bytes, server.part.state);
  }
  updated_step_ = std::max(updated_step_, step);
  return {};
}

Status WorkerConnection::end_save(const std::stop_token& stop) {
  return ask(first(), request_of(Operation::kEndSave), stop).status();
}

Result<std::optional<WorkerConnection::Record>> WorkerConnection::take_record(
    uint64_t step, uint64_t saved_step, const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const Header reply,
                          ask_first(request_of(Operation::kTakeRecord, saved_step, step), stop));
  if (reply[0] == 0) return std::optional<Record>();
  Record record{.step = static_cast<uint64_t>(reply[2]), .sums = sums_of(reply)};
  STOKER_ASSIGN_OR_RETURN(const double norm, norm_of_step(record.step, stop));
  const at::Tensor norms = at::empty({num_variables()}, at::kFloat);
  for (Server& server : servers_) {
    STOKER_RETURN_IF_ERROR(
        ask(server, request_of(Operation::kReadNorms, saved_step, record.step, {.norm = norm}),
            stop)
            .status());
    const at::Tensor own =
        at::empty({static_cast<int64_t>(server.part.variables.size())}, at::kFloat);
    STOKER_RETURN_IF_ERROR(server.connection->receive(own, stop));
    put_norms(server.part.variables, own, norms);
  }
  record.grad_norm = train::Optimizer::norm_of(norms).item<double>();
  return std::optional(record);
}

Result<control::TrainerStatus::Cluster> WorkerConnection::read_status(const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(const Header reply,
                          ask(first(), request_of(Operation::kReadStatus), stop));
  const std::vector<std::string>& workers = task_.cluster.worker;
  const at::Tensor numbers = at::empty({std::ssize(workers), kNumbersPerWorker}, at::kLong);
  STOKER_RETURN_IF_ERROR(first().connection->receive(numbers, stop));
  control::TrainerStatus::Cluster status;
  status.replicas = sums_of(reply).steps != 0 ? "async" : "sync";
  status.stale_gradients = static_cast<uint64_t>(reply[0]);
  status.backup_gradients = static_cast<uint64_t>(reply[1]);
  status.largest_staleness = static_cast<uint64_t>(reply[2]);
  for (size_t i = 0; i < servers_.size(); ++i)
    status.tasks.push_back(
        {.job = "ps",
         .index = i,
         .address = task_.cluster.ps[i],
         .state = "serving",
         .parameter_bytes = static_cast<uint64_t>(servers_[i].parameter_bytes.nbytes())});
  const auto* number = numbers.const_data_ptr<int64_t>();
  for (size_t i = 0; i < workers.size(); ++i, number += kNumbersPerWorker)
    status.tasks.push_back({.job = "worker",
                            .index = i,
                            .address = workers[i],
                            .state = number[1] != 0   ? number[2] != 0 ? "training" : "waiting"
                                     : number[0] == 0 ? "not_started"
                                                      : "lost",
                            .starts = static_cast<uint64_t>(number[0]),
                            .applied_gradients = static_cast<uint64_t>(number[3]),
                            .dropped_gradients = static_cast<uint64_t>(number[4])});
  return status;
}

Status WorkerConnection::end_run(run::RunOutcome outcome, const std::stop_token& stop) {
  const Header request = request_of(Operation::kEndRun, static_cast<uint64_t>(outcome));
  for (size_t i = servers_.size(); i-- > 0;)
    STOKER_RETURN_IF_ERROR(ask(servers_[i], request, stop).status());
  return {};
}

}  // namespace stoker::parameter_server
