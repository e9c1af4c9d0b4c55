#include "shared/feed/make_stream_feed.h"

#include <utility>

#include "shared/base/hash.h"

namespace stoker::feed {
namespace {

using data::stream::SpoolFolder;
using data::stream::StreamInputs;
using data::stream::StreamSource;

constexpr int kFileReaders = 4;

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

const config::DatasetConfig& train_data(const config::Config& config) {
  return config.data.at("train");
}

// Files of a spool folder that were read before.
SpoolFolder::Taken taken_files(const StreamState* maybe_from) {
  SpoolFolder::Taken taken;
  if (maybe_from == nullptr) return taken;
  for (const StreamState::Source& source : maybe_from->sources)
    taken.emplace(source.name.substr(source.name.rfind('/') + 1), source.identity);
  return taken;
}

}  // namespace

StreamFeedOptions make_stream_options(const config::Config& config) {
  const config::StreamConfig& stream = *train_data(config).stream;
  return {.queue = queue_type(stream.queue),
          .capacity = stream.capacity,
          .min_after_dequeue = stream.shuffle_minimum(),
          .num_threads =
              static_cast<int>(stream.num_threads.value_or(stream.has_files() ? kFileReaders : 1)),
          .seed = config.run.seed,
          .last_batch = config.feed.last_batch,
          .on_sample_error = config.feed.on_sample_error};
}

Result<StreamSource> find_stream_source(const config::Config& config) {
  const config::DatasetConfig& data = train_data(config);
  auto source = StreamSource::of(data.stream->source, data.path());
  if (!source) return source.status().with_context("data.train.stream.source");
  return source;
}

std::string stream_fingerprint(const StreamSource& source) {
  std::string text = "stream " + std::to_string(static_cast<int>(source.kind()));
  for (const std::string& name : source.names()) text += '\n' + name;
  return sha256_hex(text);
}

Result<std::unique_ptr<StreamInputs>> open_stream_inputs(
    const config::Config& config, const StreamSource& source, const StreamState* maybe_from,
    std::optional<data::stream::InputDescriptor> maybe_descriptor) {
  const config::DatasetConfig& data = train_data(config);
  const auto invalid = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "data.train.stream.source: " + what);
  };
  switch (source.kind()) {
    case StreamSource::Kind::kShards:
    case StreamSource::Kind::kGrowingFile: {
      std::optional<uint64_t> epochs;
      if (data.stream->num_epochs) epochs = static_cast<uint64_t>(*data.stream->num_epochs);
      return data::stream::make_file_inputs(source, epochs,
                                            maybe_from == nullptr ? 0 : maybe_from->next_source);
    }
    case StreamSource::Kind::kSpool:
      return data::stream::make_spool_inputs(data.path(), taken_files(maybe_from));
    case StreamSource::Kind::kStdin:
    case StreamSource::Kind::kFifo:
    case StreamSource::Kind::kSocket:
      if (!maybe_descriptor) return invalid("the descriptor was not passed");
      return data::stream::make_descriptor_inputs(*std::move(maybe_descriptor));
    case StreamSource::Kind::kExternal:
      break;
  }
  return invalid("external producers attach to the ring; they are no inputs");
}

}  // namespace stoker::feed
