// producer_handshake: the lines that a producer and a stream exchange before its bytes. docs/streams.md
// describes them.
//
// Threads: pure functions.
// Errors:  parse_hello(): kMismatch: another format; kCorrupt, kInvalidArgument: not such a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::data::stream {

inline constexpr size_t kMaxHelloBytes = 4096;
inline constexpr size_t kMaxProducerName = 64;

// The first line of a connection.
struct ProducerHello {
  std::string name;
  bool can_replay = true;    // can send again what it has sent, from the offset of the reply
  bool ends_stream = false;  // then the others are not set
};
Result<ProducerHello> parse_hello(std::string_view line);

// The replies, with their line end. Of the bytes that the producer has sent under its name on all
// connections, those before `offset` are not needed again; they had `records` records.
std::string hello_reply(uint64_t offset, uint64_t records);
std::string end_reply();
// `can_retry`: another connection may be accepted later.
std::string hello_error(std::string_view error, bool can_retry);

}  // namespace stoker::data::stream
