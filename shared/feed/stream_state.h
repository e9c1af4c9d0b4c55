// StreamState: where a stream continues after a batch, by reference: the elements of its queue and
// the positions of its inputs.
//
// Everything that was read and is in no batch is either an element of the queue or behind the position
// of its input, so that a stream that continues from a state reads every record exactly once; with one
// reader thread, its batches are the same bit for bit.
//
// Threads: values.
// Errors:  decode_state(): kCorrupt, for any bytes that encode_state() does not make.
// Format:  version 1, little-endian words; see stream_state.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/stream/byte_history.h"
#include "shared/data/stream/record_stream.h"
#include "shared/data/stream/spool_folder.h"
#include "shared/queue/queue.h"

namespace stoker::feed {

struct StreamState {
  // An input that is read, waits to be read, or has elements in the queue. Inputs are numbered in the
  // order of StreamInputs; a file that is read again has another number.
  struct Source {
    uint64_t number = 0;
    std::string name;
    data::stream::StreamPosition next;  // where reading continues
    uint64_t identity = 0;              // ByteInput::identity() there; 0: unknown
    bool ended = false;                 // nothing is left to read
    bool operator==(const Source&) const = default;
  };
  struct Element {
    uint64_t source = 0;  // Source::number
    data::stream::StreamPosition at;
    bool operator==(const Element&) const = default;
  };

  // An input that was read completely and must be remembered (StreamInputs::must_remember()).
  // Possibly also some that need not be any more.
  struct Finished {
    uint64_t number = 0;     // as of a Source
    uint64_t name_hash = 0;  // data::stream::hash_of_name()
    uint64_t identity = 0;
    bool operator==(const Finished&) const = default;
  };

  uint64_t next_source = 0;        // number of the first input that is not in `sources` yet
  std::vector<Source> sources;     // by number
  std::vector<Element> elements;   // in the order of the queue
  std::vector<Finished> finished;  // in the order in which they ended
  std::optional<queue::GeneratorState> generator;  // of a RandomShuffleQueue

  // False: the stream continues from its start. The first batches of a mixture can have no record.
  bool has_started() const { return next_source > 0; }
  bool operator==(const StreamState&) const = default;
};

// The bytes of an input that cannot be read again, from the first that a state needs to the last that
// was read, or the last of these.
struct StreamHistory {
  uint64_t begin = 0;     // offset in the input
  uint64_t complete = 0;  // as ByteHistory::Range::complete
  std::vector<std::byte> bytes;
  bool is_last = false;  // nothing was read behind it
  bool operator==(const StreamHistory&) const = default;
};
// Whether the offsets are possible with this number of bytes.
bool is_valid_range(const StreamHistory& history, uint64_t bytes);
// The offset of the first byte that a state needs of its only input; nullopt: it has ended.
std::optional<uint64_t> first_needed(const StreamState& state);
// From `first` on, or from the first byte that is there. Meanwhile, a worker may read more.
StreamHistory copy_history(const data::stream::ByteHistory& history, uint64_t first);

// The same of external producers (data::stream::ProducerHistory). `is_last`: no worker receives more.
std::optional<StreamHistory> copy_producer_history(const StreamState& state,
                                                   const data::stream::ByteHistory& history,
                                                   bool is_last);

std::vector<std::byte> encode_state(const StreamState& state);
Result<StreamState> decode_state(std::span<const std::byte> bytes);

// Of a spool folder: what a stream that continues from the state must not take again. If several inputs
// have one name, the last of them counts.
data::stream::SpoolFolder::Taken taken_files(const StreamState& state);
// Of these, what no stream that continues from the state reads: can be archived.
data::stream::SpoolFolder::Taken finished_files(const StreamState& state);

}  // namespace stoker::feed
