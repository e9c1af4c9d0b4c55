#include "daemon/train/group_coordination.h"

#include <algorithm>
#include <set>
#include <variant>

#include <ATen/ops/zeros.h>

#include "shared/base/thread_registry.h"
#include "shared/config/topology_limits.h"

namespace stoker::train {

using group::ControlRecord;
using group::RankReport;
using group::SharedCommand;

namespace {

constexpr ThreadActivity kWaitForParameters{.operation = "wait for parameters of other ranks",
                                            .is_waiting = true};
constexpr const char* kNonfiniteText = "nonfinite";

// "KEY\nVALUE", or "KEY" to unset it.
std::string to_text(const control::Command& command) {
  const std::string* const key = control::changed_setting(command);
  if (key == nullptr) return "";
  const auto* const set = std::get_if<control::SetSetting>(&command);
  return set != nullptr ? *key + '\n' + set->value : *key;
}

std::unique_ptr<GradientBuckets> make_buckets(group::ProcessGroup& group,
                                              const config::DistributedConfig& config,
                                              const Optimizer& optimizer) {
  if (config.reduction != config::Reduction::kAllReduce) return nullptr;
  return std::make_unique<GradientBuckets>(group, optimizer, config.bucket_mib);
}

}  // namespace

GroupCoordination::GroupCoordination(group::ProcessGroup& group, const config::Config& config,
                                     TrainingState& state, BatchSource& source,
                                     TrainerChannels& channels)
    : config_(config),
      state_(state),
      source_(source),
      channels_(channels),
      group_step_(group, config.train.gradient_accumulation_steps, shared_buffers(state.model())),
      maybe_buckets_(make_buckets(group, config.distributed, state.optimizer())),
      is_sharded_(state.optimizer().is_sharded()),
      num_quarantined_sent_(state.quarantined.size()) {
  for (const auto& [name, tensor] : state.optimizer().state()) optimizer_bytes_ += tensor.nbytes();
  const auto world_size = static_cast<size_t>(group.world_size());
  num_quarantined_.assign(world_size, num_quarantined_sent_);
  quarantined_of_others_.resize(world_size);
  rank_totals_.resize(world_size);
}

void GroupCoordination::start(StepEngine& engine, std::stop_token stop) {
  engine_ = &engine;
  stop_ = std::move(stop);
}

// ---- Commands

// What the ranks cannot know of each other.
Status GroupCoordination::check(const control::Command& command) const {
  const auto* const pause = std::get_if<control::Pause>(&command);
  if (pause == nullptr || !pause->release) return {};
  return Status(StatusCode::kInvalidArgument,
                "pause release: " + std::string(*config::command_limit("pause --release",
                                                                       config::Topology::kGroup)));
}

bool GroupCoordination::defer(const Request& request) {
  const control::Command& command = request.command;
  if (control::is_dry_run(command)) return false;
  if (const auto* const stop = std::get_if<control::Stop>(&command)) {
    if (stop->is_preemption) was_preempted_ = true;
    stop_requests_.push_back(request.done);
    return true;
  }
  if (std::holds_alternative<control::SaveCheckpoint>(command) && !is_chief()) {
    asks_for_save_ = true;
    return true;
  }
  if (!std::holds_alternative<control::Pause>(command) &&
      !std::holds_alternative<control::Resume>(command) &&
      control::changed_setting(command) == nullptr)
    return false;
  shared_requests_.push_back(request);
  return true;
}

// The same on all ranks, which are at the same step boundary.
Result<std::vector<Request>> GroupCoordination::agree() {
  const ControlRecord agreed = std::exchange(agreed_, {});
  sample_errors_of_others_ = agreed.sample_errors;
  is_save_agreed_ = agreed.snapshot > 0;
  is_refresh_agreed_ = agreed.refresh > 0;
  apply_capture_votes(agreed);
  std::vector<Request> commands;
  if (agreed.save > 0 && is_chief()) commands.push_back({control::SaveCheckpoint{}, {}});
  Request request;
  if (agreed.command != SharedCommand::kNone && is_chief()) {
    request = std::move(shared_requests_.front());
    shared_requests_.pop_front();
  }
  switch (agreed.command) {
    case SharedCommand::kNone:
      break;
    case SharedCommand::kPause:
      commands.push_back({control::Pause{}, std::move(request.done)});
      break;
    case SharedCommand::kResume:
      commands.push_back({control::Resume{}, std::move(request.done)});
      break;
    case SharedCommand::kChangeSetting: {
      STOKER_ASSIGN_OR_RETURN(Request setting, agreed_setting(std::move(request)));
      commands.push_back(std::move(setting));
      break;
    }
  }
  if (agreed.stop == 0) return commands;
  const control::Stop stop{.is_preemption = agreed.preempted > 0};
  commands.push_back({stop, {}});
  for (Done& done : std::exchange(stop_requests_, {})) commands.push_back({stop, std::move(done)});
  return commands;
}

// The ranks exchange their records only.
Result<std::vector<Request>> GroupCoordination::agree_while_paused() {
  STOKER_ASSIGN_OR_RETURN(
      agreed_,
      group_step_.exchange(own_record(state_.step), {.quarantined = num_quarantined_sent_}, stop_));
  channels_.group_exchanges.fetch_add(1, std::memory_order_relaxed);
  channels_.board.record_progress();
  return agree();
}

std::vector<Request> GroupCoordination::take_deferred() {
  std::vector<Request> left;
  for (Request& request : std::exchange(shared_requests_, {})) left.push_back(std::move(request));
  for (Done& done : std::exchange(stop_requests_, {}))
    left.push_back({control::Stop{.is_preemption = was_preempted_}, std::move(done)});
  if (std::exchange(asks_for_save_, false)) left.push_back({control::SaveCheckpoint{}, {}});
  return left;
}

// `request`: on the chief, whose command the others receive as text.
Result<Request> GroupCoordination::agreed_setting(Request request) {
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          group().text_of_chief(to_text(request.command), stop_));
  const size_t separator = text.find('\n');
  if (separator == std::string::npos)
    return Request{control::UnsetSetting{.key = text}, std::move(request.done)};
  return Request{
      control::SetSetting{.key = text.substr(0, separator), .value = text.substr(separator + 1)},
      std::move(request.done)};
}

// What this rank contributes to the end of the current step.
ControlRecord GroupCoordination::own_record(uint64_t step_to_save) {
  ControlRecord own{.step = state_.step};
  own.stop = stop_requests_.empty() ? 0 : 1;
  own.preempted = was_preempted_ ? 1 : 0;
  own.save = std::exchange(asks_for_save_, false) ? 1 : 0;
  const StepEngine::CaptureVote capture = engine_->capture_vote();
  own.can_capture = capture.is_ready ? 1 : 0;
  own.gave_up_capture = capture.has_given_up ? 1 : 0;
  const auto micro_batches = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  if (!is_chief()) {
    own.sample_errors = source_.sample_errors_before(state_.ticket + micro_batches);
    return own;
  }
  const bool is_paused = step_to_save == state_.step;
  const uint64_t next_ticket = state_.ticket + (is_paused ? 0 : micro_batches);
  own.refresh = source_.has_new_version_at(next_ticket) ? 1 : 0;
  if (announces_save_) own.snapshot = announces_save_(step_to_save) ? 1 : 0;
  if (shared_requests_.empty()) return own;
  const control::Command& command = shared_requests_.front().command;
  if (std::holds_alternative<control::Pause>(command)) own.command = SharedCommand::kPause;
  if (std::holds_alternative<control::Resume>(command)) own.command = SharedCommand::kResume;
  if (control::changed_setting(command) != nullptr) own.command = SharedCommand::kChangeSetting;
  return own;
}

void GroupCoordination::apply_capture_votes(const ControlRecord& agreed) {
  const auto world_size = static_cast<uint64_t>(group().world_size());
  if (agreed.gave_up_capture == 0) {
    if (agreed.can_capture == world_size) engine_->start_capturing();
  } else if (!engine_->capture_vote().has_given_up) {
    engine_->stop_capturing("not captured on " + std::to_string(agreed.gave_up_capture) + " of " +
                            std::to_string(world_size) +
                            " ranks, for the reason in the log of each of these");
  }
}

// ---- Steps

// After an error, the tensors are undefined.
std::vector<StepEngine::Exchange> GroupCoordination::exchanges(TrainStep& step, Updates updates) {
  if (is_sharded_ && is_chief()) announces_save_ = updates.announces_save;
  const auto run = [this](auto exchange) {
    return [this, exchange = std::move(exchange)] {
      exchange_status_ = exchange();
      return exchange_status_.ok();
    };
  };
  std::vector<StepEngine::Exchange> exchanges;
  exchanges.push_back({.run = run([this, &step, report = std::move(updates.report)] {
                         return sum(step, report());
                       }),
                       .work = std::move(updates.update)});
  if (is_sharded_)
    exchanges.push_back({.run = run([this] { return gather_parameters(); }),
                         .work = std::move(updates.update_ema)});
  return exchanges;
}

StepEngine::Sums GroupCoordination::sums() {
  if (!maybe_buckets_) return {};
  return {.count = maybe_buckets_->size(),
          .start = [this](size_t bucket) { maybe_buckets_->start(bucket); }};
}

void GroupCoordination::begin_sums(std::function<void(size_t)> on_complete) {
  if (maybe_buckets_) maybe_buckets_->begin(std::move(on_complete));
}

void GroupCoordination::end_sums() {
  if (maybe_buckets_) maybe_buckets_->end();
}

Status GroupCoordination::sum(TrainStep& step, RankReport report) {
  STOKER_RETURN_IF_ERROR(publish_quarantine());
  complete(report);
  if (maybe_buckets_) STOKER_RETURN_IF_ERROR(maybe_buckets_->finish(stop_));
  const auto gradients = maybe_buckets_ ? std::vector<at::Tensor>() : step.gradients_to_sum();
  if (state_.optimizer().sums_own_gradients() && step.scales_by_count()) {
    STOKER_RETURN_IF_ERROR(
        group().all_reduce_ordered({step.maybe_loss_count().unsqueeze(0)}, stop_));
    step.scale_by_count();
  }
  std::vector<at::Tensor> scalars = step.scalars_to_sum();
  for (const at::Tensor& squares : step.squares_to_sum()) scalars.push_back(squares);
  // A parameter that one rank has used has the gradient of that rank on all.
  Optimizer::Reached reached = step.settle_reached();
  STOKER_ASSIGN_OR_RETURN(agreed_, group_step_.sum(gradients, scalars, own_record(state_.step + 1),
                                                   report, stop_, &reached));
  state_.optimizer().set_reached(std::move(reached));
  has_compared_ = true;
  channels_.group_exchanges.fetch_add(1, std::memory_order_relaxed);
  // Those before the update of this step.
  STOKER_RETURN_IF_ERROR(group::compare_checksums(
      agreed_.ranks, state_.step, [this](int rank) { return group().name_of(rank); }));
  for (size_t rank = 0; rank < rank_totals_.size(); ++rank) {
    rank_totals_[rank].compute_ms += agreed_.ranks[rank].compute_ms;
    rank_totals_[rank].data_wait_ms += agreed_.ranks[rank].data_wait_ms;
    rank_totals_[rank].optimizer_bytes = agreed_.ranks[rank].optimizer_bytes;
    rank_totals_[rank].use = agreed_.ranks[rank].use;
  }
  ++rank_steps_;
  return is_chief() ? receive_quarantine() : Status();
}

// The parameters of all ranks are compared at the first step after a start, too: they were loaded.
void GroupCoordination::complete(RankReport& own) {
  own.quarantined = num_quarantined_sent_;
  own.optimizer_bytes = optimizer_bytes_;
  const auto every = config_.distributed.consistency_check_every_steps;
  if (every && (!has_compared_ || state_.step % *every == 0))
    own.checksum = checksum_of_parameters(state_.model());
}

// Of the shards that the other ranks have updated. In no phase: at the start of Phase::kOptimizer the
// gradients are complete, here they are zero.
Status GroupCoordination::gather_parameters() {
  return state_.optimizer().gather_parameters(
      [this](const at::Tensor& flat, const std::vector<int64_t>& ends) {
        const ScopedActivity waiting(kWaitForParameters);
        return group().all_gather(flat, ends, stop_);
      });
}

// With a sharded optimizer, one rank alone can have state that is not finite. All must decide the same.
Result<std::string> GroupCoordination::first_nonfinite(std::string own) {
  if (!is_sharded_) return own;
  // Before the sum, so that the others can read it when they have the flag of this rank.
  if (!own.empty()) STOKER_RETURN_IF_ERROR(group().send_text(kNonfiniteText, own));
  const at::Tensor flags = at::zeros({group().world_size()}, at::kDouble);
  flags[group().rank()].fill_(own.empty() ? 0 : 1);
  // Also during a stop: the last state is saved then.
  STOKER_RETURN_IF_ERROR(group().all_reduce_ordered({flags}, {}));
  for (int rank = 0; rank < group().world_size(); ++rank) {
    if (flags[rank].item<double>() == 0) continue;
    STOKER_ASSIGN_OR_RETURN(const std::string found, group().receive_text(kNonfiniteText, rank));
    return group().name_of(rank) + ": " + found;
  }
  return std::string();
}

// ---- Samples in quarantine, and times of the ranks

// Before the record that has their number, so that the chief can read them when it has the record.
Status GroupCoordination::publish_quarantine() {
  if (is_chief()) return {};
  const std::vector<uint64_t> samples = source_.quarantined();
  if (samples.size() == num_quarantined_sent_) return {};
  STOKER_RETURN_IF_ERROR(group().send_text("quarantined", group::format_samples(samples)));
  num_quarantined_sent_ = samples.size();
  return {};
}

Status GroupCoordination::receive_quarantine() {
  for (size_t rank = 1; rank < num_quarantined_.size(); ++rank) {
    const uint64_t count = agreed_.ranks[rank].quarantined;
    if (count == num_quarantined_[rank]) continue;
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            group().receive_text("quarantined", static_cast<int>(rank)));
    auto samples = group::parse_samples(text, count, source_.plan().options().size);
    if (!samples.ok())
      return samples.status().with_context("quarantine of " +
                                           group().name_of(static_cast<int>(rank)));
    quarantined_of_others_[rank] = *std::move(samples);
    num_quarantined_[rank] = count;
  }
  return {};
}

// Behind those of this rank, so that one process saves the same as before.
void GroupCoordination::add_quarantined(std::vector<uint64_t>& samples) const {
  std::set<uint64_t> known(samples.begin(), samples.end());
  for (const auto& others : quarantined_of_others_)
    for (const uint64_t sample : others)
      if (known.insert(sample).second) samples.push_back(sample);
}

void GroupCoordination::report(metrics::TrainMetrics& metrics, double stall_ms,
                               control::TrainerStatus::Group& status) {
  if (rank_steps_ == 0) return;
  const auto steps = static_cast<double>(std::exchange(rank_steps_, 0));
  status.ranks.clear();
  for (RankReport& total : rank_totals_) {
    const RankReport sum = std::exchange(total, {});
    status.ranks.push_back({.compute_ms = sum.compute_ms / steps,
                            .data_wait_ms = sum.data_wait_ms / steps,
                            .optimizer_bytes = sum.optimizer_bytes,
                            .use = sum.use});
  }
  const double busy_ms = status.ranks[static_cast<size_t>(group().rank())].compute_ms + stall_ms;
  status.exchange_ms = std::max(0.0, metrics.step_time_ms - busy_ms);
  metrics.maybe_exchange_ms = status.exchange_ms;
}

}  // namespace stoker::train
