#include "daemon/parameter_server/parameter_server.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <span>
#include <system_error>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include "daemon/train/sum_tree.h"
#include "daemon/train/training_error.h"
#include "shared/base/deadline.h"
#include "shared/base/exception_status.h"
#include "shared/base/log.h"

namespace stoker::parameter_server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLifePollInterval{20};
// A worker that waits for a ticket asks again after this, so that it notices that it must stop.
constexpr milliseconds kMaxClaimWait{200};
// After the loss of another server, for the chief that has ended the run there.
constexpr milliseconds kEndGrace{5'000};
constexpr milliseconds kWatchInterval{1'000};
constexpr std::chrono::seconds kDroppedLogInterval{10};
constexpr size_t kMaxRecords = 10'000;  // of a chief that does not return, the newest ones

at::Tensor make_bytes(int64_t size) { return at::empty({size}, at::kByte); }

// Added as SumTree adds them in one process.
Sums sum_in_tree(const std::map<uint64_t, Sums>& parts) {
  Sums total{.steps = 1};
  const auto view = [](std::span<double> numbers) {
    return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble);
  };
  const std::vector<at::Tensor> values{view({&total.loss, 1}), view({&total.count, 1}),
                                       view(total.metrics), view(total.metric_counts)};
  train::SumTree tree(std::ssize(parts));
  int64_t index = 0;
  for (const auto& [ticket, sums] : parts) {
    total = {.loss = sums.loss,
             .metrics = sums.metrics,
             .metric_counts = sums.metric_counts,
             .steps = 1,
             .count = sums.count};
    tree.add(values, train::SumTree::level_of(index), index + 1 == std::ssize(parts));
    ++index;
  }
  return total;
}

uint64_t parse_life(const std::optional<std::string>& text) {
  uint64_t life = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), life);
  return life;
}

// Of server 0 and the server `pair`, which watch each other.
std::string watch_prefix(size_t pair) { return "watch/" + std::to_string(pair) + "/"; }

std::string watch_key(size_t pair, size_t server) {
  return watch_prefix(pair) + std::to_string(server);
}

// Of a request of the chief; what no chief sends is a stop.
run::RunOutcome outcome_of(int64_t number) {
  for (const auto outcome : {run::RunOutcome::kFinished, run::RunOutcome::kPreempted})
    if (number == static_cast<int64_t>(outcome)) return outcome;
  return run::RunOutcome::kStopped;
}

}  // namespace

std::string ready_key(size_t server) { return "ps/" + std::to_string(server) + "/ready"; }

std::string life_key(size_t worker) { return "worker/" + std::to_string(worker) + "/life"; }

std::string connection_prefix(size_t server, const WorkerLife& worker) {
  return "ps" + std::to_string(server) + "/w" + std::to_string(worker.worker) + "/" +
         std::to_string(worker.life) + "/";
}

ParameterServer::ParameterServer(ServerOptions options, VariableStore variables)
    : options_(std::move(options)),
      parameter_bytes_(packed_bytes(variables.parameters())),
      gradient_bytes_(packed_gradient_bytes(variables.parameters())),
      state_bytes_(packed_bytes(variables.state())),
      variables_(std::move(variables)),
      schedule_(options_.updates),
      max_steps_(options_.updates.max_steps) {}

Status ParameterServer::run(const std::stop_token& stop) {
  const std::stop_callback forward(stop, [this] { stop_serving_.request_stop(); });
  const Meeting& meeting = options_.meeting;
  STOKER_ASSIGN_OR_RETURN(
      const auto store,
      group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
  // Before a worker can begin: a server that ends from here on is missed by the others.
  const auto own = static_cast<size_t>(options_.task.index);
  const size_t num_servers = options_.task.cluster.ps.size();
  for (size_t pair = std::max<size_t>(own, 1); pair < (is_first() ? num_servers : own + 1); ++pair)
    STOKER_RETURN_IF_ERROR(store->set(watch_key(pair, own), "1"));
  STOKER_RETURN_IF_ERROR(store->set(ready_key(own), "1"));
  log_info("parameter server started",
           {{"server", options_.task.index},
            {"num_variables", variables_.parameters().size()},
            {"parameter_bytes", parameter_bytes_},
            {"num_workers", options_.updates.num_workers},
            {"replicas", config::to_string(options_.updates.replicas)}});
  {
    std::vector<std::jthread> threads;
    if (const Status started = start_threads(threads); !started.ok()) {
      stop_serving_.request_stop();
      return started;
    }
    const std::stop_token serving = stop_serving_.get_token();
    wait_for_end(*store, serving);
    std::unique_lock lock(mutex_);
    if (end_by_) changed_.wait_until(lock, serving, *end_by_, [this] { return is_over(); });
    // Workers learn of the end from their next claim.
    const auto all_left = [this] {
      for (size_t worker = 0; worker < options_.updates.num_workers; ++worker)
        if (schedule_.is_present(worker)) return false;
      return true;
    };
    if (has_ended_) changed_.wait_for(lock, serving, meeting.timeout, all_left);
    lock.unlock();
    stop_serving_.request_stop();
  }
  const std::lock_guard lock(mutex_);
  if (has_ended_) {  // whatever was lost since then
    log_info("cluster ended", {{"state", run::to_string(outcome_)}, {"step", variables_.step()}});
    return {};
  }
  if (!failure_.ok()) return failure_;
  log_info("cluster ended",
           {{"state", run::to_string(run::RunOutcome::kStopped)}, {"step", variables_.step()}});
  return Status(StatusCode::kCancelled,
                "the parameter server was stopped at step " + std::to_string(variables_.step()));
}

// Until the run ends, is to end, or a task has failed in a way that no other worker can make up for.
void ParameterServer::wait_for_end(group::Store& store, const std::stop_token& serving) {
  TaskWait start(options_.meeting, options_.task.cluster.chief_name(), /*is_for_chief=*/true);
  std::unique_lock lock(mutex_);
  const auto ends = [this] { return is_over() || end_by_; };
  while (!changed_.wait_for(lock, serving, kFailureCheckInterval, ends) &&
         !serving.stop_requested()) {
    const bool waits_for_chief = !is_initialized_;
    lock.unlock();
    Status failed = check_failure(store);
    if (failed.ok() && waits_for_chief) failed = start.check();
    if (!failed.ok()) fail(failed);
    lock.lock();
  }
}

// One for each worker, and for each server that this one watches.
Status ParameterServer::start_threads(std::vector<std::jthread>& threads) {
  const auto start = [&](auto body, size_t index) {
    threads.push_back(options_.start_thread([this, body, index] {
      const std::stop_token token = stop_serving_.get_token();
      try {
        const Status served = (this->*body)(index, token);
        if (!served.ok() && !token.stop_requested()) fail(served);
      } catch (const std::exception& error) {
        fail(train::to_status(error));
      }
    }));
  };
  try {
    for (size_t worker = 0; worker < options_.updates.num_workers; ++worker)
      start(&ParameterServer::serve_worker, worker);
    if (!is_first()) start(&ParameterServer::watch_server, 0);
    for (size_t other = 1; is_first() && other < options_.task.cluster.ps.size(); ++other)
      start(&ParameterServer::watch_server, other);
  } catch (const std::system_error& error) {
    return to_status(error).with_context("thread " + std::to_string(threads.size() + 1) +
                                         " of the parameter server, which needs one for each "
                                         "worker and server");
  }
  return {};
}

void ParameterServer::request_end(milliseconds grace) {
  const std::lock_guard lock(mutex_);
  end_by_ = std::chrono::steady_clock::now() + grace;
  changed_.notify_all();
}

bool ParameterServer::is_over() const {
  return has_ended_ || (end_by_ && !schedule_.is_present(0));
}

void ParameterServer::fail(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = failure;
  stop_serving_.request_stop();
}

// ---- connections ---------------------------------------------------------------------------------

Status ParameterServer::serve_worker(size_t worker, const std::stop_token& stop) {
  const Meeting& meeting = options_.meeting;
  STOKER_ASSIGN_OR_RETURN(
      const auto store,
      group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
  uint64_t served = 0;
  while (!stop.stop_requested()) {
    const auto found = store->get(life_key(worker));
    if (!found.ok()) return found.status();
    const uint64_t life = parse_life(*found);
    if (life <= served) {
      sleep_until(stop, std::chrono::steady_clock::now() + kLifePollInterval);
      continue;
    }
    served = life;
    const Status lost = serve_life({.worker = worker, .life = life}, *store, stop);
    if (lost.code() == StatusCode::kCancelled) return {};
    // Not of this worker alone.
    if (lost.code() == StatusCode::kCorrupt || lost.code() == StatusCode::kInternal) return lost;
  }
  return {};
}

// Server 0 and the others notice each other's end: without its variables no other can continue.
Status ParameterServer::watch_server(size_t other, const std::stop_token& stop) {
  const Meeting& meeting = options_.meeting;
  STOKER_ASSIGN_OR_RETURN(
      const auto store,
      group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
  const auto pair = std::max(other, static_cast<size_t>(options_.task.index));
  STOKER_RETURN_IF_ERROR(store->wait(watch_key(pair, other), kNoDeadline, stop));
  const auto opened = group::PairConnection::open(
      *store, {.prefix = watch_prefix(pair) + "connection/",
               .side = is_first() ? 0 : 1,
               .address = meeting.address,
               .peer = "ps " + std::to_string(other) + " (" + options_.task.cluster.ps[other] + ")",
               .timeout = meeting.timeout});
  // One byte back and forth, so that a host that is lost is noticed, too.
  const at::Tensor byte = make_bytes(1).zero_();
  const milliseconds interval = std::min(meeting.timeout / 4, kWatchInterval);
  Status lost = opened.status();
  while (lost.ok() && !stop.stop_requested()) {
    group::PairConnection& connection = **opened;
    if (is_first()) {
      lost = connection.send(byte, stop);
      if (lost.ok()) lost = connection.receive(byte, stop);
      if (lost.ok()) sleep_until(stop, std::chrono::steady_clock::now() + interval);
    } else {
      lost = connection.receive(byte, stop);
      if (lost.ok()) lost = connection.send(byte, stop);
    }
  }
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, stop, kEndGrace, [this] { return has_ended_; })) return {};
  if (!stop.stop_requested())
    log_error("parameter server lost", {{"server", other}, {"error", lost.message()}});
  return lost;
}

Status ParameterServer::serve_life(const WorkerLife& life, group::TcpStore& store,
                                   const std::stop_token& stop) {
  const std::string name = "worker " + std::to_string(life.worker) + " (" +
                           options_.task.cluster.worker[life.worker] + ")";
  const auto connection = group::PairConnection::open(
      store, {.prefix = connection_prefix(static_cast<size_t>(options_.task.index), life),
              .side = 0,
              .address = options_.meeting.address,
              .peer = name,
              .timeout = options_.meeting.timeout});
  {
    const std::lock_guard lock(mutex_);
    if (!connection.ok()) {  // also if there are no threads for it
      if (!stop.stop_requested()) log_lost(life, connection.status());
      return connection.status();
    }
    STOKER_RETURN_IF_ERROR(schedule_.join(life));
    if (life.life == 1)
      log_info("cluster worker joined", {{"worker", life.worker}, {"step", variables_.step()}});
    else
      log_info("cluster worker returned",
               {{"worker", life.worker}, {"start", life.life}, {"step", variables_.step()}});
  }
  Status lost = serve_requests(life, store, **connection, stop);
  const std::lock_guard lock(mutex_);
  schedule_.leave(life);
  log_lost(life, lost);
  const Status completed = complete_step();
  changed_.notify_all();
  return completed.ok() ? lost : completed;
}

// Not of the end of a run: after the last step, or when all tasks are stopped, the other workers leave before
// the chief has saved. mutex_ is locked.
void ParameterServer::log_lost(const WorkerLife& life, const Status& lost) {
  const bool has_all_steps = schedule_.is_finished() || variables_.can_commit(max_steps_);
  if (has_ended_ || has_all_steps || end_by_ || lost.code() == StatusCode::kCancelled) return;
  log_warn("cluster worker lost",
           {{"worker", life.worker}, {"step", variables_.step()}, {"error", lost.message()}});
}

// Until the worker is lost.
Status ParameterServer::serve_requests(const WorkerLife& life, group::Store& store,
                                       group::PairConnection& connection,
                                       const std::stop_token& stop) {
  // Before its first request, a worker connects to the other servers.
  connection.set_timeout(options_.meeting.start_timeout);
  while (true) {
    STOKER_ASSIGN_OR_RETURN(const Header request, receive_header(connection, stop));
    connection.set_timeout(options_.meeting.timeout);
    STOKER_RETURN_IF_ERROR(check_request(life, request));
    STOKER_RETURN_IF_ERROR(serve(life, request, store, connection, stop));
  }
}

// ---- requests ------------------------------------------------------------------------------------

// kInvalidArgument: what no worker sends. Ends only its connection.
Status ParameterServer::check_request(const WorkerLife& worker, const Header& request) {
  bool only_chief = false, only_first = false, needs_parameters = false;
  switch (static_cast<Operation>(request[0])) {
    case Operation::kInitialize:
    case Operation::kEndRun:
      only_chief = true;
      break;
    case Operation::kBeginSave:
    case Operation::kEndSave:
    case Operation::kTakeRecord:
    case Operation::kReadStatus:
      only_chief = only_first = true;
      break;
    case Operation::kReadState:
    case Operation::kReadNorms:
      only_chief = needs_parameters = true;
      break;
    case Operation::kPull:
    case Operation::kPush:
    case Operation::kReadStepNorms:
      needs_parameters = true;
      break;
    case Operation::kReadUntrained:
      only_first = needs_parameters = true;
      break;
    case Operation::kClaim:
    case Operation::kClaimGap:
      only_first = true;
      break;
    case Operation::kApplySettings:
      only_chief = is_first();
      break;
    case Operation::kKeepAlive:
      break;
  }
  const auto invalid = [&request](const std::string& reason) {
    return Status(StatusCode::kInvalidArgument,
                  "request " + std::to_string(request[0]) + ": " + reason);
  };
  if (only_chief && worker.worker != 0) return invalid("only from the chief");
  if (only_first && !is_first()) return invalid("only parameter server 0");
  const std::lock_guard lock(mutex_);
  const bool is_again = static_cast<Operation>(request[0]) == Operation::kInitialize &&
                        is_first() && schedule_.is_initialized();
  if (is_again) return invalid("the parameters are already initialized");
  if (needs_parameters && is_first() && !schedule_.is_initialized())
    return invalid("the parameters are not initialized");
  return {};
}

Status ParameterServer::serve(const WorkerLife& worker, const Header& request, group::Store& store,
                              group::PairConnection& connection, const std::stop_token& stop) {
  const auto step = static_cast<uint64_t>(request[2]);
  switch (static_cast<Operation>(request[0])) {
    case Operation::kInitialize:
      return initialize(request, connection, stop);
    case Operation::kClaim:
      return claim(worker, connection, stop);
    case Operation::kClaimGap: {
      std::unique_lock lock(mutex_);
      STOKER_ASSIGN_OR_RETURN(const Claim claimed, schedule_.claim_gap(worker));
      const bool is_granted = claimed.result == ClaimResult::kGranted;
      const ClaimReply result = is_granted ? ClaimReply::kGranted : ClaimReply::kWait;
      const Header reply =
          with_version(make_header(static_cast<int64_t>(result), claimed.ticket, claimed.step));
      lock.unlock();
      return send_header(connection, reply, stop);
    }
    case Operation::kPull:
      return pull(request, /*with_state=*/false, connection, stop);
    case Operation::kReadState:
      return pull(request, /*with_state=*/true, connection, stop);
    case Operation::kPush:
      return push(worker, request, connection, stop);
    case Operation::kBeginSave: {
      std::unique_lock lock(mutex_);
      STOKER_ASSIGN_OR_RETURN(const bool is_complete, schedule_.begin_save(worker));
      const Header reply =
          with_version(make_header(is_complete ? 1 : 0, 0, schedule_.step(), interval_));
      changed_.notify_all();
      lock.unlock();
      return send_header(connection, reply, stop);
    }
    case Operation::kEndSave: {
      std::unique_lock lock(mutex_);
      schedule_.end_save(worker);
      STOKER_RETURN_IF_ERROR(complete_step());
      changed_.notify_all();
      lock.unlock();
      return send_header(connection, make_header(0), stop);
    }
    case Operation::kTakeRecord: {
      std::unique_lock lock(mutex_);
      // A chief that returns continues from the checkpoint, and needs the records after it again.
      const auto saved = static_cast<uint64_t>(request[1]);
      while (!records_.empty() && records_.front().first <= saved) records_.pop_front();
      const auto next = std::ranges::find_if(
          records_, [step](const auto& record) { return record.first > step; });
      const Header reply = with_version(
          next == records_.end() ? make_header(0) : make_header(1, 0, next->first, next->second));
      lock.unlock();
      return send_header(connection, reply, stop);
    }
    case Operation::kReadStepNorms:
      return read_step_norms(step, connection, stop);
    case Operation::kReadNorms:
      return read_norms(request, connection, stop);
    case Operation::kReadStatus:
      return read_status(connection, stop);
    case Operation::kReadUntrained: {
      std::unique_lock lock(mutex_);
      const at::Tensor untrained = untrained_;  // never changed, at most replaced
      lock.unlock();
      STOKER_RETURN_IF_ERROR(send_header(connection, make_header(0), stop));
      return connection.send(untrained, stop);
    }
    case Operation::kEndRun: {
      STOKER_RETURN_IF_ERROR(send_header(connection, make_header(0), stop));
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
      outcome_ = outcome_of(request[1]);
      changed_.notify_all();
      return {};
    }
    case Operation::kApplySettings:
      STOKER_RETURN_IF_ERROR(apply_settings(static_cast<uint64_t>(request[1]), store));
      return send_header(connection, make_header(0), stop);
    case Operation::kKeepAlive:
      return send_header(connection, make_header(0), stop);
  }
  return Status(StatusCode::kInvalidArgument, "unknown request " + std::to_string(request[0]));
}

// Those that this server has are the same, from whomever they come.
Status ParameterServer::apply_settings(uint64_t version, group::Store& store) {
  std::unique_lock lock(mutex_);
  while (num_versions_ < version) {
    const uint64_t next = num_versions_ + 1;
    lock.unlock();
    STOKER_ASSIGN_OR_RETURN(const auto text, store.get(settings_key(next)));
    if (!text)
      return Status(StatusCode::kInvalidArgument,
                    "version " + std::to_string(next) + " of the settings is not in the store");
    STOKER_ASSIGN_OR_RETURN(const SettingsVersion settings, parse_settings_version(*text));
    lock.lock();
    if (num_versions_ >= next) continue;  // another worker was faster
    STOKER_ASSIGN_OR_RETURN(max_steps_, options_.apply_settings(settings));
    if (is_first()) schedule_.set_max_steps(max_steps_);
    num_versions_ = next;
    changed_.notify_all();
  }
  return {};
}

Header ParameterServer::with_version(Header reply) const {
  reply[kVersion] = static_cast<int64_t>(num_versions_);
  return reply;
}

// The update of a sync step, which a worker knows of from server 0. mutex_ is locked.
Status ParameterServer::commit(const Header& request) {
  const auto step = static_cast<uint64_t>(request[2]);
  if (options_.updates.replicas != config::ReplicaMode::kSync) return {};
  if (!variables_.can_commit(step))
    return Status(StatusCode::kInvalidArgument,
                  "step " + std::to_string(step) + " is not complete on this server");
  return variables_.commit(step, sums_of(request).norm);
}

Status ParameterServer::read_step_norms(uint64_t step, group::PairConnection& connection,
                                        const std::stop_token& stop) {
  std::optional<at::Tensor> norms;
  {
    const std::lock_guard lock(mutex_);
    if (!variables_.can_commit(step))
      return Status(StatusCode::kInvalidArgument,
                    "step " + std::to_string(step) + " is not complete on this server");
    STOKER_ASSIGN_OR_RETURN(norms, variables_.step_norms(step));
  }
  STOKER_RETURN_IF_ERROR(send_header(connection, make_header(norms ? 1 : 0), stop));
  return norms ? connection.send(*norms, stop) : Status();
}

Status ParameterServer::read_norms(const Header& request, group::PairConnection& connection,
                                   const std::stop_token& stop) {
  const auto step = static_cast<uint64_t>(request[2]);
  std::optional<at::Tensor> norms;
  {
    const std::lock_guard lock(mutex_);
    STOKER_RETURN_IF_ERROR(commit(request));
    variables_.forget_norms(static_cast<uint64_t>(request[1]));
    norms = variables_.norms(step);
  }
  STOKER_RETURN_IF_ERROR(send_header(connection, make_header(norms ? 1 : 0, 0, step), stop));
  const std::vector<int64_t> size{std::ssize(variables_.parameters())};
  return connection.send(norms.value_or(at::full(size, std::nan(""), at::kFloat)), stop);
}

Status ParameterServer::read_status(group::PairConnection& connection,
                                    const std::stop_token& stop) {
  const auto num_workers = static_cast<int64_t>(options_.updates.num_workers);
  const at::Tensor numbers = at::empty({num_workers, kNumbersPerWorker}, at::kLong);
  auto* number = numbers.mutable_data_ptr<int64_t>();
  Header reply{};
  {
    const std::lock_guard lock(mutex_);
    reply =
        make_header(static_cast<int64_t>(schedule_.num_stale()), schedule_.num_backups(),
                    schedule_.largest_staleness(),
                    {.steps = options_.updates.replicas == config::ReplicaMode::kAsync ? 1 : 0});
    for (size_t worker = 0; worker < options_.updates.num_workers; ++worker) {
      const WorkerSummary summary = schedule_.summary(worker);
      *number++ = static_cast<int64_t>(summary.starts);
      // Has left because there are no more tickets.
      const bool has_finished = summary.starts > 0 && schedule_.is_finished();
      *number++ = summary.is_present || has_finished ? 1 : 0;
      *number++ = summary.has_ticket ? 1 : 0;
      *number++ = static_cast<int64_t>(summary.applied);
      *number++ = static_cast<int64_t>(summary.dropped);
    }
  }
  STOKER_RETURN_IF_ERROR(send_header(connection, reply, stop));
  return connection.send(numbers, stop);
}

Status ParameterServer::initialize(const Header& request, group::PairConnection& connection,
                                   const std::stop_token& stop) {
  const at::Tensor parameters = make_bytes(parameter_bytes_), state = make_bytes(state_bytes_);
  STOKER_RETURN_IF_ERROR(connection.receive(parameters, stop));
  STOKER_RETURN_IF_ERROR(connection.receive(state, stop));
  const at::Tensor untrained = make_bytes(options_.untrained_bytes);
  if (is_first()) STOKER_RETURN_IF_ERROR(connection.receive(untrained, stop));
  {
    const std::lock_guard lock(mutex_);
    untrained_ = untrained;
    const auto step = static_cast<uint64_t>(request[2]);
    unpack(parameters, variables_.parameters());
    unpack(state, variables_.state());
    variables_.initialize(step);
    is_initialized_ = true;
    if (is_first() && !schedule_.is_initialized()) schedule_.initialize(step);
    interval_ = sums_of(request);
    log_info("cluster initialized", {{"step", step}});
    changed_.notify_all();
  }
  return send_header(connection, make_header(0), stop);
}

// Waits for a ticket, so that a worker begins as soon as there is one.
Status ParameterServer::claim(const WorkerLife& worker, group::PairConnection& connection,
                              const std::stop_token& stop) {
  Header reply = make_header(static_cast<int64_t>(ClaimReply::kWait));
  {
    std::unique_lock lock(mutex_);
    const Deadline deadline = std::chrono::steady_clock::now() + kMaxClaimWait;
    while (true) {
      if (!schedule_.is_initialized() && worker.worker == 0) {
        reply[0] = static_cast<int64_t>(ClaimReply::kInitialize);
        break;
      }
      if (has_ended_) {
        reply = make_header(static_cast<int64_t>(ClaimReply::kEnded),
                            outcome_ == run::RunOutcome::kPreempted ? 1 : 0, schedule_.step());
        break;
      }
      STOKER_ASSIGN_OR_RETURN(const Claim claimed, schedule_.claim(worker));
      if (claimed.result == ClaimResult::kGranted)
        reply = make_header(
            static_cast<int64_t>(ClaimReply::kGranted), claimed.ticket, claimed.step,
            {.steps = claimed.prefetch ? static_cast<int64_t>(*claimed.prefetch) : kNoTicket});
      if (claimed.result == ClaimResult::kEnded)
        reply = make_header(static_cast<int64_t>(ClaimReply::kEnded), 0, schedule_.step());
      if (claimed.result != ClaimResult::kWait) break;
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) break;
    }
    reply = with_version(reply);
  }
  return send_header(connection, reply, stop);
}

Status ParameterServer::pull(const Header& request, bool with_state,
                             group::PairConnection& connection, const std::stop_token& stop) {
  const at::Tensor parameters = make_bytes(parameter_bytes_);
  const at::Tensor state = make_bytes(with_state ? state_bytes_ : 0);
  Header reply = make_header(0);
  {
    const std::lock_guard lock(mutex_);
    STOKER_RETURN_IF_ERROR(commit(request));
    pack(variables_.parameters(), parameters);
    if (with_state) pack(variables_.state(), state);
    reply[2] = static_cast<int64_t>(variables_.step());
  }
  STOKER_RETURN_IF_ERROR(send_header(connection, reply, stop));
  STOKER_RETURN_IF_ERROR(connection.send(parameters, stop));
  return connection.send(state, stop);
}

Status ParameterServer::push(const WorkerLife& worker, const Header& request,
                             group::PairConnection& connection, const std::stop_token& stop) {
  const at::Tensor payload = make_bytes(gradient_bytes_);
  STOKER_RETURN_IF_ERROR(connection.receive(payload, stop));
  Header reply = make_header(0);
  {
    const std::lock_guard lock(mutex_);
    STOKER_ASSIGN_OR_RETURN(const PushResult result, update(worker, request, payload));
    reply = make_header(static_cast<int64_t>(result), 0, variables_.step());
    changed_.notify_all();
  }
  return send_header(connection, reply, stop);
}

// Server 0 is the last one that gets a gradient, and decides. The others take it first.
Result<PushResult> ParameterServer::update(const WorkerLife& worker, const Header& request,
                                           const at::Tensor& payload) {
  const auto ticket = static_cast<uint64_t>(request[1]);
  const bool is_sync = options_.updates.replicas == config::ReplicaMode::kSync;
  const Sums sums = sums_of(request);
  if (!is_sync && variables_.needs_norm() && sums.norm < 0)
    return Status(StatusCode::kInvalidArgument, "the gradient of ticket " + std::to_string(ticket) +
                                                    " has no norm of all gradients");
  const auto add = [&]() -> Status {
    if (!is_sync) return variables_.apply(ticket, payload, sums.norm, sums.count);
    variables_.stage(ticket, payload, sums.count);
    return {};
  };
  if (!is_first()) {
    STOKER_RETURN_IF_ERROR(add());
    return PushResult::kAccepted;
  }
  const uint64_t num_stale = schedule_.num_stale();
  STOKER_ASSIGN_OR_RETURN(const PushResult result, schedule_.push(worker, ticket));
  if (result == PushResult::kDropped) {
    log_dropped(worker, ticket, schedule_.num_stale() > num_stale);
    return result;
  }
  of_step_[ticket] = sums;
  STOKER_RETURN_IF_ERROR(add());
  STOKER_RETURN_IF_ERROR(complete_step());
  return result;
}

void ParameterServer::log_dropped(const WorkerLife& worker, uint64_t ticket, bool is_stale) {
  const auto now = std::chrono::steady_clock::now();
  if (dropped_logged_at_ && now - *dropped_logged_at_ < kDroppedLogInterval) {
    ++num_suppressed_;
    return;
  }
  dropped_logged_at_ = now;
  log_info("gradient dropped", {{"worker", worker.worker},
                                {"ticket", ticket},
                                {"step", schedule_.step()},
                                {"reason", is_stale ? "stale" : "backup"},
                                {"suppressed", std::exchange(num_suppressed_, 0)}});
}

// If all gradients of the step are there: updates in a sync run, adds the losses, and ends a record. Not after
// the run has ended: the state that the chief has saved is the last one.
Status ParameterServer::complete_step() {
  if (is_over() || !schedule_.complete_step()) return {};
  // Otherwise the next request of a worker has the norm.
  if (options_.updates.replicas == config::ReplicaMode::kSync && !variables_.needs_norm())
    STOKER_RETURN_IF_ERROR(variables_.commit(schedule_.step()));
  Sums of_step = sum_in_tree(std::exchange(of_step_, {}));
  of_step.loss *= variables_.count_scale(of_step.count);
  add_step(interval_, of_step);
  if (!options_.is_recorded(schedule_.step())) return {};
  records_.emplace_back(schedule_.step(), std::exchange(interval_, {}));
  if (records_.size() > kMaxRecords) records_.pop_front();
  return {};
}

}  // namespace stoker::parameter_server
