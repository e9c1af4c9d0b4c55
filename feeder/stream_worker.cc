#include "feeder/stream_worker.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "feeder/sandbox.h"
#include "shared/base/coordinator.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/stream_feed.h"
#include "shared/feed/stream_state_table.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feeder {
namespace {

constexpr auto kStreamGrace =
    std::chrono::milliseconds(500);  // stokerd kills the process after 900

Result<std::unique_ptr<data::stream::StreamInputs>> open_inputs(
    const FeederArguments& arguments, const config::Config& config,
    const std::optional<feed::StreamState>& from) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  if (feed::stream_fingerprint(source) != arguments.fingerprint)
    return Status(StatusCode::kMismatch,
                  "data.train.stream.source: files were added or removed since stokerd started");
  std::optional<data::stream::InputDescriptor> descriptor;
  if (arguments.input_fd >= 0)
    descriptor = data::stream::InputDescriptor{.fd = UniqueFd(arguments.input_fd),
                                               .name = arguments.input_name};
  return feed::open_stream_inputs(config, source, from ? &*from : nullptr, std::move(descriptor));
}

// Starts the threads and waits for them.
Status run_stream(feed::StreamFeed& stream, const std::optional<feed::StreamState>& from,
                  const feed::StreamStateTable& states) {
  if (from) STOKER_RETURN_IF_ERROR(stream.restore(*from, {}));
  Coordinator coordinator;
  stream.start(coordinator);
  const Status status = coordinator.join(kStreamGrace);
  if (status.ok() && stream.end_ticket()) states.end_at(*stream.end_ticket());
  if (coordinator.all_joined()) return status;
  // A read hangs; exit without joining its thread.
  log_error("worker failed", {{"error", status.to_string()}});
  flush_log();
  ::_exit(static_cast<int>(exit_code_for(status)));
}

}  // namespace

Status run_stream_worker(const FeederArguments& arguments, bool& sandbox_refused) {
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(arguments.config_path, {}));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .file = {}}));
  const auto train = config.data.find("train");
  if (train == config.data.end() || !train->second.stream)
    return Status(StatusCode::kMismatch, "the configuration has no data.train.stream");
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::attach(UniqueFd(arguments.ring_fd)));
  STOKER_ASSIGN_OR_RETURN(const auto states,
                          feed::StreamStateTable::attach(UniqueFd(arguments.stream_fd)));
  STOKER_ASSIGN_OR_RETURN(const auto quarantine,
                          feed::QuarantineTable::attach(UniqueFd(arguments.quarantine_fd)));
  STOKER_ASSIGN_OR_RETURN(const auto from, states.initial());
  STOKER_ASSIGN_OR_RETURN(const auto inputs, open_inputs(arguments, config, from));
  const feed::StreamFeedOptions options = feed::make_stream_options(config);
  STOKER_ASSIGN_OR_RETURN(
      const auto stream,
      feed::StreamFeed::create({.name = train->first, .config = train->second}, *inputs, options,
                               *ring,
                               {.index = arguments.producer, .generation = arguments.generation},
                               [&states](uint64_t ticket, const feed::StreamState& after) {
                                 return states.record(ticket, after);
                               }));
  const Status sandboxed = enter_sandbox(
      {.threads = options.num_threads,
       .memory_bytes = static_cast<uint64_t>(config.feed.worker_memory_limit_mib.value_or(0)) << 20,
       .reads_ahead = 3,  // threads: file names, closing of the queues, batches
       .read_ahead_bytes = options.max_bytes,
       .filter = config.feed.sandbox},
      quarantine.denied_syscall_slot(arguments.worker));
  if (sandboxed.code() == StatusCode::kPermission) sandbox_refused = true;
  STOKER_RETURN_IF_ERROR(sandboxed);
  return run_stream(*stream, from, states);
}

}  // namespace stoker::feeder
