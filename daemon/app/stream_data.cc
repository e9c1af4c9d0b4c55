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
#include "shared/data/dataset_request.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/spool_folder.h"
#include "shared/data/stream/stream_source.h"
#include "shared/feed/make_stream_feed.h"
#include "shared/feed/stream_state.h"

namespace stoker::app {
namespace {

Result<feed::StreamState> read_stream_state(const std::string& checkpoint) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint::SafetensorsFile::open(join_path(
                                                  checkpoint, "trainer_state.safetensors")));
  STOKER_ASSIGN_OR_RETURN(auto state, train::read_stream(*tensors));
  return state ? *std::move(state) : feed::StreamState();
}

constexpr uint64_t kStreamSize = uint64_t{1} << 60;  // more than can be read

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

class StreamDataset final : public data::Dataset {
 public:
  explicit StreamDataset(data::DatasetInfo info) : info_(std::move(info)) {}

  const data::DatasetInfo& info() const override { return info_; }
  data::SampleSource source(uint64_t /*sample*/) const override { return {}; }
  Status read(uint64_t /*sample*/, const data::RandomKey& /*random_key*/,
              std::span<const std::span<std::byte>> /*outputs*/) const override {
    return Status(StatusCode::kInternal, "a sample of a stream cannot be read by its number");
  }

 private:
  const data::DatasetInfo info_;
};

}  // namespace

Result<std::unique_ptr<data::Dataset>> make_stream_dataset(const config::Config& config) {
  const auto& [name, settings] = *config.data.find("train");
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  STOKER_ASSIGN_OR_RETURN(const auto decoder,
                          data::stream::RecordDecoder::make({.name = name, .config = settings}));
  return std::unique_ptr<data::Dataset>(std::make_unique<StreamDataset>(
      data::DatasetInfo{.size = kStreamSize,
                        .fingerprint = feed::stream_fingerprint(config, source),
                        .spec = decoder->spec(0),
                        .classes = decoder->classes()}));
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
  if (!input.ok()) return input.status().with_context("data.train.stream.source");
  return std::make_unique<StreamInput>(StreamInput{.descriptor = *std::move(input)});
}

Result<supervisor::StreamSupply> make_stream_supply(const config::Config& config,
                                                    const data::Dataset& data,
                                                    train::TrainingState& state,
                                                    const StreamInput* maybe_input) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  const feed::StreamFeedOptions options = feed::make_stream_options(config, source);
  supervisor::StreamSupply supply{.first_ticket = state.ticket,
                                  .state = state.stream,
                                  .fingerprint = data.fingerprint(),
                                  .capacity = static_cast<uint64_t>(options.capacity),
                                  .num_threads = options.num_threads};
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
    if (!state.stream) supply.history.reset();  // it starts over
    supply.has_same_producer =
        supply.has_producers || source.kind() == data::stream::StreamSource::Kind::kFifo;
  }
  return supply;
}

void archive_finished_files(const config::Config& config, const Result<feed::StreamState>& state) {
  if (!config::training_stream(config)->is_spool()) return;
  Status status = state.status();
  if (status.ok())
    status = data::stream::SpoolFolder::archive_all(
        default_file_system(), config.data.at("train").path(), feed::finished_files(*state));
  if (!status.ok()) log_warn("spool files not archived", {{"error", status.to_string()}});
}

void archive_finished_files(const config::Config& config, const std::string& checkpoint) {
  if (config::training_stream(config)->is_spool())
    archive_finished_files(config, read_stream_state(checkpoint));
}

}  // namespace stoker::app
