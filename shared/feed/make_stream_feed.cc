#include "shared/feed/make_stream_feed.h"

#include <utility>

#include "shared/data/dataset_request.h"

namespace stoker::feed {
namespace {

using data::stream::SpoolFolder;
using data::stream::StreamInputs;
using data::stream::StreamSource;

constexpr int kShardReaders = 4;

queue::QueueType queue_type(config::StreamQueue queue) {
  switch (queue) {
    case config::StreamQueue::kFifo:
      return queue::QueueType::kFIFO;
    case config::StreamQueue::kRandomShuffle:
      return queue::QueueType::kRandomShuffle;
    case config::StreamQueue::kPaddingFifo:
      return queue::QueueType::kPaddingFIFO;
  }
  return queue::QueueType::kFIFO;
}

// A single input has one reader.
int num_readers(const config::StreamConfig& stream, StreamSource::Kind kind) {
  switch (kind) {
    case StreamSource::Kind::kShards:
      return static_cast<int>(stream.num_threads.value_or(kShardReaders));
    case StreamSource::Kind::kSpool:
      return static_cast<int>(stream.num_threads.value_or(1));
    case StreamSource::Kind::kStdin:
    case StreamSource::Kind::kFifo:
    case StreamSource::Kind::kSocket:
    case StreamSource::Kind::kGrowingFile:
    case StreamSource::Kind::kExternal:
      return 1;
  }
  return 1;
}

}  // namespace

StreamFeedOptions make_stream_options(const config::Config& config, const StreamSource& source) {
  const config::StreamConfig& stream = *config::training_stream(config);
  return {.queue = queue_type(stream.queue),
          .capacity = stream.capacity,
          .min_after_dequeue = stream.shuffle_minimum(),
          .num_threads = num_readers(stream, source.kind()),
          .seed = config.run.seed,
          .last_batch = config.feed.last_batch,
          .on_sample_error = config.feed.on_sample_error};
}

Result<StreamSource> find_stream_source(const config::Config& config) {
  const auto& [name, data] = *config::streamed_dataset(config);
  return StreamSource::of(data::DatasetRequest{.name = name, .config = data});
}

Result<std::unique_ptr<StreamInputs>> open_stream_inputs(
    const config::Config& config, const StreamSource& source, const StreamState* maybe_from,
    std::optional<data::stream::InputDescriptor> maybe_descriptor,
    std::optional<data::stream::ByteHistory> maybe_history) {
  const auto& [name, data] = *config::streamed_dataset(config);
  const auto invalid = [&name = name](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "data." + name + ".stream.source: " + what);
  };
  const uint64_t first = maybe_from == nullptr ? 0 : maybe_from->next_source;
  switch (source.kind()) {
    case StreamSource::Kind::kShards:
    case StreamSource::Kind::kGrowingFile: {
      std::optional<uint64_t> epochs;
      if (data.stream->num_epochs) epochs = static_cast<uint64_t>(*data.stream->num_epochs);
      return data::stream::make_file_inputs(source, epochs, first);
    }
    case StreamSource::Kind::kSpool:
      return data::stream::make_spool_inputs(
          data.path(), maybe_from == nullptr ? SpoolFolder::Taken() : taken_files(*maybe_from));
    case StreamSource::Kind::kStdin:
    case StreamSource::Kind::kFifo:
    case StreamSource::Kind::kSocket:
      if (!maybe_descriptor) return invalid("the descriptor was not passed");
      if (maybe_history)
        return data::stream::make_recorded_inputs(*std::move(maybe_descriptor), *maybe_history,
                                                  first);
      return data::stream::make_descriptor_inputs(*std::move(maybe_descriptor), first);
    case StreamSource::Kind::kExternal:
      break;
  }
  return invalid("external producers attach to the ring; they are no inputs");
}

}  // namespace stoker::feed
