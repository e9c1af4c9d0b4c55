// make_producer_inputs: the inputs of source external, producers that connect to a Unix socket.
//
// A producer has a name, which stands for one input: its stream continues over connections and
// restarts of both sides. The thread of next() accepts connections and reads their first lines, many
// at a time; open() replies with the offset from which the producer sends. Beyond the connections that
// are read, producers wait for the reply, and then in the backlog of the socket.
//
// What is received is appended to the history. Inputs of which it has bytes that were not read yet
// come first, without their producers; a connection with such a name waits until they are read.
//
// Threads:   see StreamInputs.
// Errors:    those of StreamInputs. A connection that is rejected gets one line that says why, and is
//            logged.
// Sandbox:   accepts on the one socket, sends on connections, and asks for their peers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/data/stream/byte_history.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/record_stream.h"
#include "shared/data/stream/stream_inputs.h"

namespace stoker::data::stream {

struct ProducerOptions {
  std::vector<uid_t> users = {};  // that may connect, in addition to root and that of this process
  std::chrono::milliseconds hello_timeout{10'000};  // for the first line
  size_t max_hellos = 32;    // connections that have not sent it; a new one ends the oldest
  size_t max_names = 4096;   // a checkpoint has the position of each
  size_t max_waiting = 256;  // connections that no reader has taken
};

// A producer of a stream that continues.
struct KnownProducer {
  std::string name;
  StreamPosition next;
  bool can_replay = false;
};

// ByteInput::identity() of a producer that can send again what it has sent. Otherwise it is 0.
inline constexpr uint64_t kReplayingProducer = 1;

// `listening`: a socket that does not block.
std::unique_ptr<StreamInputs> make_producer_inputs(
    InputDescriptor listening, ProducerOptions options,
    std::optional<ByteHistory> maybe_history = std::nullopt, std::vector<KnownProducer> known = {});

}  // namespace stoker::data::stream
