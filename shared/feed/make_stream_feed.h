// make_stream_feed: options and inputs of the stream that training reads, from the configuration.
//
// stokerd and stoker-feed create them in the same way.
//
// Threads:  any.
// Blocking: for the disk.
// Errors:   those of StreamSource; kInvalidArgument: the source needs a descriptor, or has external
//           producers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/stream_inputs.h"
#include "shared/data/stream/stream_source.h"
#include "shared/feed/stream_feed.h"
#include "shared/feed/stream_state.h"

namespace stoker::feed {

// The configuration must have a streamed_dataset().
StreamFeedOptions make_stream_options(const config::Config& config,
                                      const data::stream::StreamSource& source);
Result<data::stream::StreamSource> find_stream_source(const config::Config& config);
// `maybe_from`: the state from which the stream continues. `maybe_descriptor`: required by sources
// that have one.
Result<std::unique_ptr<data::stream::StreamInputs>> open_stream_inputs(
    const config::Config& config, const data::stream::StreamSource& source,
    const StreamState* maybe_from,
    std::optional<data::stream::InputDescriptor> maybe_descriptor = std::nullopt,
    std::optional<data::stream::ByteHistory> maybe_history = std::nullopt);

}  // namespace stoker::feed
