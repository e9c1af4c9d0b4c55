#include "daemon/app/stream_data.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "daemon/server/peer.h"
#include "daemon/train/stream_tensors.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/data/stream/spool_folder.h"
#include "shared/data/stream/stream_source.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/stream_state.h"

namespace stoker::app {
namespace {

// The run is locked, so another stokerd has no socket there. But if it was killed, its worker process
// listens until it has ended, too.
Result<server::ListeningSocket> open_producer_socket(const std::string& path) {
  constexpr auto kTimeout = std::chrono::seconds(5);
  constexpr auto kPoll = std::chrono::milliseconds(50);
  const server::SocketPurpose purpose{.name = "socket of external producers",
                                      .suggestion = "or use another run directory"};
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  for (;;) {
    auto socket = server::ListeningSocket::open(path, std::chrono::milliseconds(500), purpose);
    if (socket.status().code() != StatusCode::kInvalidArgument ||
        std::chrono::steady_clock::now() >= deadline)
      return socket;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

Result<feed::StreamState> read_stream_state(const std::string& checkpoint) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint::SafetensorsFile::open(join_path(
                                                  checkpoint, "trainer_state.safetensors")));
  STOKER_ASSIGN_OR_RETURN(auto state, train::read_stream(*tensors));
  return state ? *std::move(state) : feed::StreamState();
}

Result<std::unique_ptr<StreamInput>> open_stream_input(const config::Config& config,
                                                       const run::RunLayout& layout) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  if (source.kind() == data::stream::StreamSource::Kind::kExternal) {
    STOKER_ASSIGN_OR_RETURN(auto socket, open_producer_socket(layout.producer_socket()));
    data::stream::InputDescriptor descriptor{.fd = socket.take_descriptor(),
                                             .name = layout.producer_socket()};
    return std::make_unique<StreamInput>(
        StreamInput{.descriptor = std::move(descriptor), .maybe_socket = std::move(socket)});
  }
  if (!source.has_descriptor()) return std::unique_ptr<StreamInput>();
  auto input = source.open_descriptor();
  if (!input.ok())
    return input.status().with_context("data." + config::streamed_dataset(config)->first +
                                       ".stream.source");
  return std::make_unique<StreamInput>(StreamInput{.descriptor = *std::move(input)});
}

Result<supervisor::StreamSupply> make_stream_supply(const config::Config& config,
                                                    const data::Source& data,
                                                    train::TrainingState& state,
                                                    const StreamInput* maybe_input,
                                                    bool continues_stream) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  const feed::StreamFeedOptions options = feed::make_stream_options(config, source);
  supervisor::StreamSupply supply{.first_ticket = state.ticket,
                                  .state = state.stream,
                                  .fingerprint = data::info_of(data).fingerprint,
                                  .capacity = static_cast<uint64_t>(options.capacity),
                                  .num_threads = options.num_threads,
                                  .has_indexed = data::indexed_part(data) != nullptr};
  if (maybe_input != nullptr) {
    supply.input_fd = maybe_input->descriptor.fd.get();
    supply.input_name = maybe_input->descriptor.name;
    supply.has_producers = source.kind() == data::stream::StreamSource::Kind::kExternal;
    if (supply.has_producers) {
      STOKER_ASSIGN_OR_RETURN(supply.producer_users,
                              server::resolve_operators(config.control.operators));
    }
    supply.history_bytes = static_cast<uint64_t>(config::training_stream(config)->save_elements_mib)
                           << 20;
    supply.history = std::exchange(state.stream_history, std::nullopt);
    const bool has_same_producer =
        continues_stream || source.kind() == data::stream::StreamSource::Kind::kFifo;
    supply.finds_records =
        data::stream::finds_records(config::streamed_dataset(config)->second.format());
    supply.continues_history = has_same_producer && supply.history && supply.history->is_last;
    // Producers say where they continue.
    supply.continues_history |= supply.has_producers;
  }
  return supply;
}

void archive_finished_files(const config::Config& config, const Result<feed::StreamState>& state) {
  if (!config::training_stream(config)->is_spool()) return;
  Status status = state.status();
  if (status.ok())
    status = data::stream::SpoolFolder::archive_all(default_file_system(),
                                                    config::streamed_dataset(config)->second.path(),
                                                    feed::finished_files(*state));
  if (!status.ok()) log_warn("spool files not archived", {{"error", status.to_string()}});
}

void archive_finished_files(const config::Config& config, const std::string& checkpoint) {
  if (config::training_stream(config)->is_spool())
    archive_finished_files(config, read_stream_state(checkpoint));
}

}  // namespace stoker::app
