#include "feeder/stream_worker.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "feeder/sandbox.h"
#include "shared/base/coordinator.h"
#include "shared/base/deadline.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/label_range_check.h"
#include "shared/data/source.h"
#include "shared/data/stream/stream_source.h"
#include "shared/feed/indexed_rows.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/stream_feed.h"
#include "shared/feed/stream_state_table.h"
#include "shared/feed/worker_pool.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feeder {
namespace {

// stokerd kills the process after 900 ms, or with producers, which cannot send again what is lost, after
// 5 s.
constexpr std::chrono::milliseconds kStreamGrace{500};
constexpr std::chrono::milliseconds kProducerGrace{4500};
constexpr auto kReportInterval = std::chrono::milliseconds(100);

Result<std::unique_ptr<data::stream::StreamInputs>> open_inputs(
    const feed::WorkerArguments& arguments, const config::Config& config,
    const data::stream::StreamSource& source, const feed::StreamStateTable& states,
    const std::optional<feed::StreamState>& from) {
  std::optional<data::stream::InputDescriptor> descriptor;
  if (arguments.input_fd >= 0)
    descriptor = data::stream::InputDescriptor{.fd = UniqueFd(arguments.input_fd),
                                               .name = arguments.input_name};
  return feed::open_stream_inputs(config, source, from ? &*from : nullptr, std::move(descriptor),
                                  states.maybe_history(), arguments.producer_users);
}

// The datasets of a mixture that have an index.
struct IndexedPart {
  IndexedPart(const data::Dataset& data, data::order::SamplePlan its_plan, ring::ShmRing& ring,
              ring::ProducerId producer, const feed::QuarantineTable& quarantine, uint32_t worker)
      : plan(std::move(its_plan)),
        guarded(data, quarantine, worker),
        rows(guarded, plan, ring, producer) {}

  const data::order::SamplePlan plan;
  const feed::CrashTrackingDataset guarded;
  feed::IndexedRows rows;
};

// data.train, with its files and indexes as stokerd has opened them; `source` as well.
Result<data::Stream> open_data(const feed::WorkerArguments& arguments, const config::Config& config,
                               const data::stream::StreamSource& source) {
  STOKER_ASSIGN_OR_RETURN(
      auto data, data::pipeline::open_indexed_source("train", config.data, arguments.index_dir, "",
                                                     feed::sample_cache_budget(config.feed)));
  // Files can be added while they are listed.
  STOKER_ASSIGN_OR_RETURN(const auto listed_again, feed::find_stream_source(config));
  const config::StreamConfig& stream = *config::training_stream(config);
  if (data::info_of(data).fingerprint != arguments.fingerprint ||
      source.fingerprint(stream) != listed_again.fingerprint(stream))
    return Status(StatusCode::kMismatch,
                  "data.train: files were added, removed or indexed again since stokerd started");
  auto& opened = std::get<data::Stream>(data);
  if (opened.maybe_indexed)
    opened.maybe_indexed = data::record::with_range_check(config, std::move(opened.maybe_indexed));
  return std::move(opened);
}

// Empty unless all readers wait for the producer of their input.
std::string source_waited_for(const feed::StreamFeed& stream, const config::DatasetConfig& data) {
  const feed::StreamStatus status = stream.status();
  if (status.activity != feed::StreamStatus::Activity::kWaiting) return "";
  if (!status.input.empty()) return status.input;
  if (data.stream->source == "external") return "external producers";
  return data.stream->is_spool() ? data.path() : data.stream->source;
}

// Tells stokerd whether the stream waits, what the threads of its queues do, and what this process uses.
Status report_activity(const feed::StreamFeed& stream, const config::DatasetConfig& data,
                       const feed::StreamStateTable& states, feed::SharedUse& use,
                       const std::stop_token& stop) {
  std::string last;
  do {
    const std::string now = source_waited_for(stream, data);
    if (now != last) states.set_waits_for(now);
    last = now;
    states.set_threads(stream.threads());
    use.store(measure_process());
  } while (sleep_until(stop, std::chrono::steady_clock::now() + kReportInterval));
  return {};
}

// Starts the threads, some of which read the indexed rows of a mixture, and waits for them.
Status run_stream(feed::StreamFeed& stream, data::stream::StreamInputs& inputs,
                  const std::optional<feed::StreamState>& from, const config::DatasetConfig& data,
                  const feed::StreamStateTable& states, feed::IndexedRows* maybe_indexed,
                  const feed::WorkerArguments& arguments, const feed::QuarantineTable& quarantine) {
  const bool has_producers = data.stream->source == "external";
  if (from) STOKER_RETURN_IF_ERROR(stream.restore(*from, {}));
  states.set_receiving(has_producers);
  Coordinator coordinator;
  stream.start(coordinator);
  if (maybe_indexed != nullptr) maybe_indexed->start(arguments.threads, coordinator);
  coordinator.start(std::make_unique<ThreadRecord>("stream-report", "report state"),
                    [&](const std::stop_token& stop) {
                      return report_activity(stream, data, states, quarantine.use(arguments.worker),
                                             stop);
                    });
  const Status status = coordinator.join(has_producers ? kProducerGrace : kStreamGrace);
  if (status.ok() && stream.end_ticket()) states.end_at(*stream.end_ticket());
  if (coordinator.all_joined()) {
    inputs.save_unread();
    states.set_receiving(false);
    return status;
  }
  exit_without_join(status, arguments, quarantine);
}

}  // namespace

Status run_stream_worker(const feed::WorkerArguments& arguments,
                         const feed::QuarantineTable& quarantine, bool& sandbox_refused) {
  STOKER_ASSIGN_OR_RETURN(const auto states,
                          feed::StreamStateTable::attach(UniqueFd(arguments.stream_fd)));
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(arguments.config_path, {}));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .format = config.log.format}));
  if (!config::training_stream(config))
    return Status(StatusCode::kMismatch, "the configuration has no stream in data.train");
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::attach(UniqueFd(arguments.ring_fd)));
  STOKER_ASSIGN_OR_RETURN(auto from, states.initial());
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  feed::StreamFeedOptions options = feed::make_stream_options(config, source);
  const bool has_producers = source.kind() == data::stream::StreamSource::Kind::kExternal;
  if (from && has_producers)
    feed::drop_unsaved_elements(*from, states.maybe_history(), options.queue);
  STOKER_ASSIGN_OR_RETURN(const auto inputs, open_inputs(arguments, config, source, states, from));
  STOKER_ASSIGN_OR_RETURN(const data::Stream opened, open_data(arguments, config, source));
  const ring::ProducerId producer{.index = arguments.producer, .generation = arguments.generation};
  options.limits =
      data::record::LabelRangeCheck::of(config, ring->layout().sample(), opened.info.classes);
  std::optional<IndexedPart> indexed;
  if (opened.maybe_indexed) {
    const data::Dataset& dataset = *opened.maybe_indexed;
    STOKER_ASSIGN_OR_RETURN(auto plan, feed::load_sample_plan(config, dataset, arguments.index_dir,
                                                              feed::kLatestTicket));
    indexed.emplace(dataset, std::move(plan), *ring, producer, quarantine, arguments.worker);
    options.maybe_indexed = &indexed->rows;
  }
  const int num_workers = indexed ? arguments.threads : 0;
  const auto& [name, data] = *config::streamed_dataset(config);
  STOKER_ASSIGN_OR_RETURN(
      const auto stream,
      feed::StreamFeed::create({.name = name, .config = data}, *inputs, options, *ring, producer,
                               [&states](uint64_t ticket, const feed::StreamState& after) {
                                 return states.record(ticket, after);
                               }));
  const Status sandboxed = enter_sandbox(
      {.threads = options.num_threads + num_workers,
       .memory_bytes = static_cast<uint64_t>(config.feed.worker_memory_limit_mib.value_or(0)) << 20,
       .reads_ahead = 4,  // threads: file names, closing of the queues, batches, reports
       .read_ahead_bytes = options.max_bytes,
       .filter = config.feed.sandbox,
       .writable_fds = opened.info.writable_fds,
       .listening_fd = has_producers ? std::optional(arguments.input_fd) : std::nullopt},
      quarantine.denied_syscall_slot(arguments.worker));
  if (sandboxed.code() == StatusCode::kPermission) sandbox_refused = true;
  STOKER_RETURN_IF_ERROR(sandboxed);
  return run_stream(*stream, *inputs, from, data, states, options.maybe_indexed, arguments,
                    quarantine);
}

}  // namespace stoker::feeder
