#include "daemon/app/stream_data.h"

#include <string>
#include <utility>

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

Result<feed::StreamState> read_stream_state(const std::string& checkpoint) {
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint::SafetensorsFile::open(join_path(
                                                  checkpoint, "trainer_state.safetensors")));
  STOKER_ASSIGN_OR_RETURN(auto state, train::read_stream(*tensors));
  return state ? *std::move(state) : feed::StreamState();
}

}  // namespace

Result<std::optional<data::stream::InputDescriptor>> open_stream_input(
    const config::Config& config) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  if (!source.has_descriptor()) return std::optional<data::stream::InputDescriptor>();
  auto input = source.open_descriptor();
  if (!input.ok())
    return input.status().with_context("data." + config::streamed_dataset(config)->first +
                                       ".stream.source");
  return std::optional(*std::move(input));
}

Result<supervisor::StreamSupply> make_stream_supply(
    const config::Config& config, const data::Dataset& data, train::TrainingState& state,
    const data::stream::InputDescriptor* maybe_input) {
  STOKER_ASSIGN_OR_RETURN(const auto source, feed::find_stream_source(config));
  const feed::StreamFeedOptions options = feed::make_stream_options(config, source);
  supervisor::StreamSupply supply{.first_ticket = state.ticket,
                                  .state = state.stream,
                                  .fingerprint = data.fingerprint(),
                                  .capacity = static_cast<uint64_t>(options.capacity),
                                  .num_threads = options.num_threads,
                                  .has_indexed = config.data.at("train").combines_datasets()};
  if (maybe_input != nullptr) {
    supply.input_fd = maybe_input->fd.get();
    supply.input_name = maybe_input->name;
    supply.history_bytes = static_cast<uint64_t>(config::training_stream(config)->save_elements_mib)
                           << 20;
    supply.history = std::exchange(state.stream_history, std::nullopt);
    supply.has_same_producer = source.kind() == data::stream::StreamSource::Kind::kFifo;
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
