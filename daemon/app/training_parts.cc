#include "daemon/app/training_parts.h"

#include <algorithm>
#include <utility>

#include "daemon/train/device.h"
#include "shared/base/log.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr auto kGrace = 10s;  // for writers to end after the last of their work was taken

// Lost rows are no reason to lose a checkpoint.
void flush_rows(metrics::MetricsWriter& rows) {
  if (const Status flushed = rows.flush(kGrace); !flushed.ok())
    log_warn("metrics write failed", {{"error", flushed.to_string()}});
}

}  // namespace

Status TrainingParts::open_outputs(const config::Config& config, const run::RunLayout& layout,
                                   Clock& clock) {
  metrics::MetricsWriterOptions rows;
  rows.train_metrics_path = layout.train_metrics_file();
  if (config.metrics.tensorboard)
    rows.tensorboard_directory = join_path(layout.tensorboard_dir(), "train");
  STOKER_ASSIGN_OR_RETURN(metrics,
                          metrics::MetricsWriter::open(default_file_system(), clock, rows, resume));
  retention_manager = std::make_unique<checkpoint::RetentionManager>(config, *store, layout, clock);
  checkpoint::WriterOptions saving;
  saving.delete_expired = [this](bool is_disk_full) {
    retention_manager->delete_expired(is_disk_full);
  };
  // If a checkpoint exists, so do the records and sample errors up to its step.
  saving.before_commit = [this] {
    flush_rows(*metrics);
    feed->flush_sample_errors();
  };
  STOKER_ASSIGN_OR_RETURN(saving.pinned_allocator, train::make_pinned_allocator(state->device()));
  writer = std::make_unique<checkpoint::CheckpointWriter>(*store, std::move(saving), clock);
  writers.start("metrics", [this](std::stop_token stop) { return metrics->run(stop); });
  writers.start("checkpoints", [this](std::stop_token stop) { return writer->run(stop); });
  return {};
}

Status TrainingParts::start_feed(const config::Config& config, const run::RunLayout& layout,
                                 const std::string& index_dir, Clock& clock) {
  const ring::BatchLayout batch(data->spec(), static_cast<uint64_t>(config.train.micro_batch_size));
  const auto tickets_a_step = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
  const uint64_t left = config.train.max_steps - std::min(state->step, config.train.max_steps);
  const ring::RingOptions options{.slots = static_cast<uint64_t>(config.feed.prefetch_batches),
                                  .first_ticket = state->ticket,
                                  .end_ticket = state->ticket + left * tickets_a_step};
  STOKER_ASSIGN_OR_RETURN(ring, ring::ShmRing::create(batch, options));
  supervisor::FeedOptions feeding;
  feeding.feed = config.feed;
  feeding.config_path = layout.config_file();
  feeding.index_dir = index_dir;
  feeding.sample_error_path = layout.sample_errors_file();
  feeding.sample_errors = sample_errors;
  feeding.sample_errors.ticket = state->ticket;
  feeding.sample_errors.tickets_a_step = tickets_a_step;
  feeding.quarantined = state->quarantined;
  feed = std::make_unique<supervisor::FeedSupervisor>(std::move(feeding), *ring, *data, plan,
                                                      feeders, clock);
  return feed->start();
}

Status TrainingParts::shut_down() {
  feed->stop();
  feeders.request_stop();
  watchers.request_stop();
  Status fed = feeders.join(kGrace);
  if (const Status watched = watchers.join(kGrace); fed.ok()) fed = watched;
  flush_rows(*metrics);
  writers.request_stop();
  const Status written = writers.join(kGrace);
  return fed.ok() ? written : fed;
}

void TrainingParts::add_live(control::TrainerStatus& status) const {
  add_feed(status.feed);
  const auto saved = writer->stats();
  status.checkpoint.last_saved_step = std::max(status.checkpoint.last_saved_step, saved.last_step);
  status.checkpoint.is_saving = saved.in_flight;
  status.checkpoint.saved_total = saved.saved;
  status.checkpoint.failed_total = saved.failures;
  status.checkpoint.skipped_total = saved.skipped;
  status.checkpoint.last_error = saved.last_error;
  // Known here before the trainer, which looks when it reports.
  const bool trains = status.state == control::TrainerState::kTraining ||
                      status.state == control::TrainerState::kSaving;
  if (saved.degraded && trains) status.state = control::TrainerState::kDegraded;
}

void TrainingParts::add_feed(control::TrainerStatus::Feed& of_status) const {
  const ring::RingCounters counters = ring->counters();
  of_status.ready_batches = counters.ready;
  of_status.queue_capacity = ring->slots();
  of_status.sample_errors = feed->sample_errors();
  of_status.requeued_batches = counters.requeued;
  of_status.workers = feed->live_workers();
  const supervisor::WorkerActivity::Busy busy = feed->busy();
  of_status.workers_reading = busy.reading;
  of_status.workers_decoding = busy.decoding;
  of_status.workers_transforming = busy.transforming;
  of_status.workers_waiting = busy.waiting;
  of_status.worker_crashes = feed->crashes();
  of_status.worker_timeouts = feed->timeouts();
  of_status.external_producers = feed->external_producers();
}

}  // namespace stoker::app
