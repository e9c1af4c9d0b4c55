#include "daemon/train/reporter.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "shared/base/log.h"
#include "shared/run/batch_sizes.h"

namespace stoker::train {

using std::chrono::nanoseconds;

namespace {

double to_ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Not the CPU, whose memory is that of the process.
bool has_memory(const cuda::DeviceUsage& use) { return use.reserved_bytes > 0; }

void add_device_memory(const cuda::DeviceUsage& device, ResourceUse& use) {
  if (!has_memory(device)) return;
  use[Resource::kDeviceAllocated] = static_cast<double>(device.allocated_bytes);
  use[Resource::kDeviceReserved] = static_cast<double>(device.reserved_bytes);
  use[Resource::kDevicePeakAllocated] = static_cast<double>(device.peak_bytes);
}

}  // namespace

void add_settings(const config::Config& config, const config::LiveSettings& live,
                  control::TrainerStatus& status) {
  status.max_steps = config.train.max_steps;
  status.live_settings.clear();
  for (const config::LiveSetting& setting : live)
    status.live_settings.emplace_back(setting.key, setting.value);
}

void add_writer(const writer::WriterStats& saved, control::TrainerStatus::Checkpoint& status) {
  status.last_saved_step = std::max(status.last_saved_step, saved.last_step);
  status.is_saving = saved.in_flight;
  status.commit_ms = saved.last_ms;
  status.saved_total = saved.saved;
  status.failed_total = saved.failures;
  status.skipped_total = saved.skipped;
  status.last_error = saved.last_error;
}

void add_record(const metrics::TrainMetrics& record, control::TrainerStatus& status) {
  status.loss = record.loss;
  status.training_metrics.clear();
  for (const auto& [name, value] : record.metrics)
    status.training_metrics.push_back({.name = name, .value = value});
  status.samples_per_second = record.samples_per_second;
  status.step_time_ms = record.step_time_ms;
  status.feed.data_wait_ms = record.data_wait_ms;
}

Reporter::Reporter(const config::Config& config, TrainingState& state, BatchSource& source,
                   MetricsSink& sink, TrainerChannels& channels, writer::CheckpointWriter& writer,
                   Clock& clock, Coordination& ranks, std::string data)
    : config_(config),
      state_(state),
      source_(source),
      sink_(sink),
      channels_(channels),
      writer_(writer),
      clock_(clock),
      ranks_(ranks) {
  add_settings(config_, state_.settings, status_);
  status_.device = state.device().str();
  status_.data = std::move(data);
  status_.checkpoint.last_saved_step = state.step;
}

void Reporter::start() {
  interval_.started = measured_ = clock_.monotonic();
  meter_.begin(measured_, source_.worker_use());
  core_wait_.begin(measured_);
  channels_.board.set_step(state_.step);
  publish(control::TrainerState::kTraining);
}

// ---- Times

void Reporter::begin_step() {
  step_start_ = clock_.monotonic();
  waited_before_step_ = interval_.waited;
}

void Reporter::end_step(double lr) {
  step_lr_ = lr;
  ++interval_.steps;
  channels_.board.set_step(state_.step);
}

void Reporter::add_wait(nanoseconds waited) { interval_.waited += waited; }

void Reporter::add_stall(nanoseconds stall) { interval_.stalled += stall; }

void Reporter::add_pause(nanoseconds began, nanoseconds ended) {
  interval_.paused += ended - began;
  meter_.begin(ended, source_.worker_use());  // a pause uses nothing
  core_wait_.begin(ended);
  measured_ = ended;
}

group::RankReport Reporter::rank_report() const {
  group::RankReport own{.compute_ms = to_ms(clock_.monotonic() - step_start_),
                        .data_wait_ms = to_ms(interval_.waited - waited_before_step_)};
  for (size_t i = 0; i < own.use.size(); ++i)
    if (const double value = status_.resources.values()[i]; std::isfinite(value))
      own.use[i] = value;
  return own;
}

void Reporter::Interval::add_to(metrics::TrainMetrics& record, nanoseconds now,
                                uint64_t batch) const {
  const double busy_ms = to_ms(now - started - paused);
  const auto count = static_cast<double>(steps);
  record.samples_per_second = busy_ms > 0 ? 1e3 * count * static_cast<double>(batch) / busy_ms : 0;
  record.step_time_ms = busy_ms / count;
  record.data_wait_ms = to_ms(waited) / count;
  record.checkpoint_stall_ms = to_ms(stalled);
}

// ---- Records

bool Reporter::is_record_due() const {
  return state_.step == config_.train.max_steps ||
         state_.step % config_.metrics.log_every_steps == 0 ||
         ends_plateau_interval(config_.scheduler, state_.step);
}

metrics::TrainMetrics Reporter::begin_record(const cuda::DeviceUsage& usage) {
  const nanoseconds now = clock_.monotonic();
  const auto batch = static_cast<uint64_t>(config_.train.micro_batch_size *
                                           config_.train.gradient_accumulation_steps);
  metrics::TrainMetrics record;
  record.step = state_.step;
  record.epoch = source_.plan().epoch_of(state_.ticket);
  record.lr = step_lr_;
  record.samples_seen =
      run::batch_size_at(state_.batch_sizes, state_.step, config_.train).samples_after(state_.step);
  interval_.add_to(record, now, batch);
  record.degraded = writer_.is_degraded() ? 1 : 0;
  record.wall_time = to_iso8601(clock_.wall());
  remaining_.add(interval_.steps, static_cast<double>(interval_.steps) * record.step_time_ms / 1e3);
  const double stall_ms = record.checkpoint_stall_ms / static_cast<double>(interval_.steps);
  interval_ = Interval{.started = now};
  record_device_usage(usage);
  ranks_.report(record, stall_ms, status_.group);
  measure_resources(now, record);
  check_cores(now, record.step_time_ms);
  return record;
}

void Reporter::record_device_usage(const cuda::DeviceUsage& usage) {
  if (const uint64_t works = usage.works - device_usage_.works; works > 0)
    status_.device_time_ms = (usage.work_ms - device_usage_.work_ms) / static_cast<double>(works) *
                             static_cast<double>(ranks_.share().length());
  device_usage_ = usage;
  add_device_memory(usage, status_.resources);
}

void Reporter::check_cores(nanoseconds now, double step_time_ms) {
  if (has_warned_of_cores_ || !state_.device().is_cpu()) return;
  const auto found = core_wait_.check(now);
  if (!found) return;
  has_warned_of_cores_ = true;
  const bool are_too_many = found->num_cores < found->num_threads;
  log_warn("threads without a core",
           {{"step_time_ms", step_time_ms},
            {"waited_ms", step_time_ms * found->waited},
            {"num_threads", found->num_threads},
            {"hint", (are_too_many ? "train.num_threads: " + std::to_string(found->num_cores) +
                                         " is as many as had a core; or "
                                   : std::string()) +
                         "run fewer programs on this machine"}});
}

void Reporter::measure_resources(nanoseconds now, metrics::TrainMetrics& record) {
  if (!meter_.is_due(now)) return;
  ResourceUse& own = status_.resources;
  own = meter_.measure(now, source_.worker_use());
  add_device_memory(device_usage_, own);
  const double work_ms =
      device_usage_.work_ms - std::exchange(measured_work_ms_, device_usage_.work_ms);
  const double elapsed_ms = to_ms(now - std::exchange(measured_, now));
  if (has_memory(device_usage_)) own[Resource::kDeviceBusy] = std::min(1.0, work_ms / elapsed_ms);
  record.resources = own;
  const auto& ranks = status_.group.ranks;
  const auto own_rank = static_cast<size_t>(ranks_.share().rank);
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (size_t i = 0; rank != own_rank && i < kProcessResources; ++i)
      if (double& sum = record.resources.values()[i]; !std::isnan(sum)) sum += ranks[rank].use[i];
}

uint64_t Reporter::finish_record(metrics::TrainMetrics record, const NonfiniteReport& found) {
  // NaN if all steps were skipped.
  record.loss = found.loss_sum / static_cast<double>(found.steps);
  for (size_t i = 0; i < found.metrics.size(); ++i)
    record.metrics.emplace_back(state_.training_metrics()[i], found.metrics[i]);
  record.grad_norm = found.grad_norm;
  record.maybe_skipped_steps = found.maybe_skipped_steps;
  record.maybe_loss_scale = found.maybe_loss_scale;
  const uint64_t bytes = sink_.report(record);

  state_.loss_trend.add(record.loss);
  if (monitors_training_loss(config_.scheduler))
    state_.plateau.add_losses(found.loss_sum, found.steps);
  add_record(record, status_);
  status_.eta_seconds = remaining_.seconds(config_.train.max_steps - record.step);
  publish();
  return bytes;
}

// ---- Status

void Reporter::publish(control::TrainerState activity) {
  const bool is_paused = channels_.is_paused && activity != control::TrainerState::kStopping;
  status_.state = is_paused ? control::TrainerState::kPaused : activity;
  status_.step = state_.step;
  status_.epoch = source_.plan().epoch_of(state_.ticket);
  status_.lr = learning_rate(config_, state_);
  status_.skipped_steps = state_.skipped_steps;
  status_.rollbacks = state_.rollbacks;
  channels_.board.publish(status_);
  channels_.board.record_progress();
}

void Reporter::publish() {
  const auto stats = writer_.stats();
  if (stats.degraded) return publish(control::TrainerState::kDegraded);
  publish(stats.in_flight ? control::TrainerState::kSaving : control::TrainerState::kTraining);
}

void Reporter::publish_settings() {
  add_settings(config_, state_.settings, status_);
  publish();
}

void Reporter::publish_snapshot(nanoseconds stall) {
  status_.checkpoint.stall_ms = to_ms(stall);
  publish(control::TrainerState::kSaving);
}

}  // namespace stoker::train
