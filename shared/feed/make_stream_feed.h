// make_stream_feed: options and inputs of the stream that training reads, from the configuration.
//
// stokerd and stoker-feed create them in the same way.
//
// Threads:  any.
// Blocking: for the disk.
// Errors:   those of StreamSource; kInvalidArgument: the source needs a descriptor.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/stream_inputs.h"
#include "shared/data/stream/stream_source.h"
#include "shared/feed/stream_feed.h"
#include "shared/feed/stream_state.h"
#include "shared/queue/queue.h"

namespace stoker::feed {

// The configuration must have a streamed_dataset().
StreamFeedOptions make_stream_options(const config::Config& config,
                                      const data::stream::StreamSource& source);
Result<data::stream::StreamSource> find_stream_source(const config::Config& config);
// `maybe_from`: the state from which the stream continues. `maybe_descriptor`: required by sources
// that have one, and the socket of external producers, which `producer_users` may use.
Result<std::unique_ptr<data::stream::StreamInputs>> open_stream_inputs(
    const config::Config& config, const data::stream::StreamSource& source,
    const StreamState* maybe_from,
    std::optional<data::stream::InputDescriptor> maybe_descriptor = std::nullopt,
    std::optional<data::stream::ByteHistory> maybe_history = std::nullopt,
    std::vector<uid_t> producer_users = {});
// For a stream of external producers that continues: what copy_producer_history() has copied; the last
// parts, if the history is too small for all.
void restore_producer_history(const StreamHistory& saved, const data::stream::ByteHistory& history);
// After a worker that was killed: what producers had sent and it had not read may be lost.
void forget_ends_of_producers(const data::stream::ByteHistory& history);
// For a stream of external producers that continues: the elements of which the history does not have
// the bytes. With a queue that keeps the order, a producer sends its elements again; others are lost,
// which is logged.
void drop_unsaved_elements(StreamState& state,
                           const std::optional<data::stream::ByteHistory>& maybe_history,
                           queue::QueueType queue);

}  // namespace stoker::feed
