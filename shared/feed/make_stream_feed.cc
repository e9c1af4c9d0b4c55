#include "shared/feed/make_stream_feed.h"

#include <algorithm>
#include <map>
#include <utility>

#include "shared/base/log.h"
#include "shared/data/dataset_request.h"
#include "shared/data/stream/producer_history.h"
#include "shared/data/stream/producer_inputs.h"

namespace stoker::feed {
namespace {

using data::stream::SpoolFolder;
using data::stream::StreamInputs;
using data::stream::StreamSource;

constexpr int kAutoReaders = 4;

queue::QueueType queue_type(config::StreamQueue queue) {
  switch (queue) {
    case config::StreamQueue::kFifo:
      return queue::QueueType::kFIFO;
    case config::StreamQueue::kRandomShuffle:
      return queue::QueueType::kRandomShuffle;
    case config::StreamQueue::kPaddingFifo:
      return queue::QueueType::kPaddingFIFO;
    case config::StreamQueue::kPriority:
      return queue::QueueType::kPriority;
  }
  return queue::QueueType::kFIFO;
}

// A single input has one reader.
int num_readers(const config::StreamConfig& stream, const StreamSource& source) {
  switch (source.kind()) {
    case StreamSource::Kind::kShards:
      if (source.names().size() == 1) return static_cast<int>(stream.num_threads.value_or(1));
      [[fallthrough]];
    case StreamSource::Kind::kExternal:
      return static_cast<int>(stream.num_threads.value_or(kAutoReaders));
    case StreamSource::Kind::kSpool:
      return static_cast<int>(stream.num_threads.value_or(1));
    case StreamSource::Kind::kStdin:
    case StreamSource::Kind::kFifo:
      return 1;
  }
  return 1;
}

bool keeps_order(queue::QueueType queue) {
  switch (queue) {
    case queue::QueueType::kFIFO:
    case queue::QueueType::kPaddingFIFO:
      return true;
    case queue::QueueType::kRandomShuffle:
    case queue::QueueType::kPriority:
      return false;
  }
  return false;
}

std::vector<data::stream::KnownProducer> known_producers(const StreamState* maybe_state) {
  std::vector<data::stream::KnownProducer> known;
  if (maybe_state == nullptr) return known;
  for (const StreamState::Source& source : maybe_state->sources)
    known.push_back({.name = source.name,
                     .next = source.next,
                     .can_replay = source.identity == data::stream::kReplayingProducer});
  return known;
}

// Of one producer, in a queue that keeps its order: it is consecutive in its stream.
void send_again(StreamState& state, StreamState::Source& source) {
  std::erase_if(state.elements, [&source](const StreamState::Element& element) {
    if (element.source != source.number) return false;
    if (element.at.offset < source.next.offset) source.next = element.at;
    return true;
  });
}

}  // namespace

StreamFeedOptions make_stream_options(const config::Config& config, const StreamSource& source) {
  const config::StreamConfig& stream = *config::training_stream(config);
  return {.queue = queue_type(stream.queue),
          .capacity = stream.capacity,
          .min_after_dequeue = stream.shuffle_minimum(),
          .num_threads = num_readers(stream, source),
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
    std::optional<data::stream::ByteHistory> maybe_history, std::vector<uid_t> producer_users) {
  const auto& [name, data] = *config::streamed_dataset(config);
  const auto invalid = [&name = name](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "data." + name + ".stream.source: " + what);
  };
  const uint64_t first = maybe_from == nullptr ? 0 : maybe_from->next_source;
  switch (source.kind()) {
    case StreamSource::Kind::kShards: {
      std::optional<uint64_t> epochs;
      if (data.stream->num_epochs) epochs = static_cast<uint64_t>(*data.stream->num_epochs);
      return data::stream::make_file_inputs(source, epochs, first);
    }
    case StreamSource::Kind::kSpool:
      return data::stream::make_spool_inputs(
          data.path(), maybe_from == nullptr ? SpoolFolder::Taken() : taken_files(*maybe_from));
    case StreamSource::Kind::kStdin:
    case StreamSource::Kind::kFifo:
      if (!maybe_descriptor) return invalid("the descriptor was not passed");
      if (maybe_history)
        return data::stream::make_recorded_inputs(*std::move(maybe_descriptor), *maybe_history,
                                                  first);
      return data::stream::make_descriptor_inputs(*std::move(maybe_descriptor), first);
    case StreamSource::Kind::kExternal:
      if (!maybe_descriptor) return invalid("the descriptor was not passed");
      return data::stream::make_producer_inputs(*std::move(maybe_descriptor),
                                                {.users = std::move(producer_users)}, maybe_history,
                                                known_producers(maybe_from));
  }
  return invalid("unknown");
}

void restore_producer_history(const StreamHistory& saved,
                              const data::stream::ByteHistory& history) {
  data::stream::ProducerHistory(history).assign(saved.bytes);
  if (!saved.is_last) forget_ends_of_producers(history);
}

void forget_ends_of_producers(const data::stream::ByteHistory& history) {
  data::stream::ProducerHistory(history).forget_ends();
}

void drop_unsaved_elements(StreamState& state,
                           const std::optional<data::stream::ByteHistory>& maybe_history,
                           queue::QueueType queue) {
  std::map<std::string, std::vector<data::stream::ProducerHistory::Part>> saved;
  if (maybe_history) saved = data::stream::ProducerHistory(*maybe_history).by_name();
  for (StreamState::Source& source : state.sources) {
    const auto parts = saved.find(source.name);
    const auto is_lost = [&](const StreamState::Element& element) {
      return element.source == source.number &&
             (parts == saved.end() || element.at.offset < parts->second.front().offset ||
              element.at.offset >= parts->second.back().end());
    };
    const auto lost = std::ranges::count_if(state.elements, is_lost);
    if (lost == 0) continue;
    if (keeps_order(queue) && source.identity == data::stream::kReplayingProducer) {
      send_again(state, source);
      continue;
    }
    std::erase_if(state.elements, is_lost);
    log_warn("stream records lost",
             {{"source", "producer " + source.name},
              {"queued_records", lost},
              {"reason", "stream.save_elements_mib is too small to hold the queue"}});
  }
}

}  // namespace stoker::feed
