#include "daemon/daemon_app/training_parts.h"

#include <algorithm>
#include <utility>

#include "daemon/train/device.h"
#include "shared/base/log.h"

namespace stoker::daemon_app {
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
  metrics::MetricsWriterSettings rows;
  rows.train_rows = layout.train_rows();
  if (config.metrics.tensorboard) rows.tensorboard_directory = join_path(layout.tb(), "train");
  STOKER_ASSIGN_OR_RETURN(metrics, metrics::MetricsWriter::open(real_files(), clock, rows, resume));
  retainer = std::make_unique<writer::Retainer>(config, *store, layout, clock);
  writer::WriterSettings saving;
  saving.retire = [this](bool is_short) { retainer->retire(is_short); };
  // A checkpoint that is there means that the rows and bad samples up to its step are, too.
  saving.before_commit = [this] {
    flush_rows(*metrics);
    feed->flush_bad_samples();
  };
  STOKER_ASSIGN_OR_RETURN(saving.pinning, train::pinning_of(state->device()));
  writer = std::make_unique<writer::CheckpointWriter>(*store, std::move(saving), clock);
  writers.start("metrics", [this](std::stop_token stop) { return metrics->run(stop); });
  writers.start("checkpoints", [this](std::stop_token stop) { return writer->run(stop); });
  return {};
}

Status TrainingParts::start_feed(const config::Config& config, const run::RunLayout& layout,
                                 const std::string& index_dir, Clock& clock) {
  const ring::BatchLayout batch(data->spec(), static_cast<uint64_t>(config.train.micro_batch_size));
  const auto tickets_a_step = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
  const uint64_t left = config.train.max_steps - std::min(state->step, config.train.max_steps);
  const ring::RingSettings settings{.slots = static_cast<uint64_t>(config.feed.prefetch_batches),
                                    .first_ticket = state->ticket,
                                    .end_ticket = state->ticket + left * tickets_a_step};
  STOKER_ASSIGN_OR_RETURN(ring, ring::ShmRing::create(batch, settings));
  feeder::FeedSettings feeding;
  feeding.feed = config.feed;
  feeding.config_path = layout.config_file();
  feeding.index_dir = index_dir;
  feeding.bad_sample_path = layout.bad_samples_file();
  feeding.bad_samples = bad_samples;
  feeding.bad_samples.ticket = state->ticket;
  feeding.bad_samples.tickets_a_step = tickets_a_step;
  feeding.quarantined = state->quarantined;
  feed = std::make_unique<feeder::FeedSupervisor>(std::move(feeding), *ring, *data, plan, feeders,
                                                  clock);
  return feed->start();
}

Status TrainingParts::wind_up() {
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
  status.checkpoint.last_step = std::max(status.checkpoint.last_step, saved.last_step);
  status.checkpoint.in_flight = saved.in_flight;
  status.checkpoint.saved = saved.saved;
  status.checkpoint.failures = saved.failures;
  status.checkpoint.skipped = saved.skipped;
  status.checkpoint.last_error = saved.last_error;
  // Known here before the trainer, which looks when it reports.
  const bool trains = status.state == control::TrainerState::kTraining ||
                      status.state == control::TrainerState::kSaving;
  if (saved.degraded && trains) status.state = control::TrainerState::kDegraded;
}

void TrainingParts::add_feed(control::TrainerStatus::Feed& of_status) const {
  const ring::RingCounters counters = ring->counters();
  of_status.ready_slots = counters.ready;
  of_status.slots = ring->slots();
  of_status.bad_samples = feed->bad_samples();
  of_status.reissued = counters.reissued;
  of_status.readers = feed->live_readers();
  const feeder::FeedActivity::Busy busy = feed->busy();
  of_status.reading = busy.reading;
  of_status.decoding = busy.decoding;
  of_status.transforming = busy.transforming;
  of_status.waiting = busy.waiting;
  of_status.deaths = feed->deaths();
  of_status.hangs = feed->hangs();
  of_status.outside = feed->outside_producers();
}

}  // namespace stoker::daemon_app
