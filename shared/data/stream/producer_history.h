// ProducerHistory: the last bytes of the producers that connect to a stream, by name and offset, in one
// ByteHistory that processes share. From it, a worker process that is restarted and a run that is
// resumed read what was received before and not used, also if its producer does not connect again.
//
// Threads:   append() in one at a time; copy_needed() in any, meanwhile too.
// Blocking:  never.
// Ownership: a view; the memory must outlive it.
// Trust:     the memory can contain anything. Invalid parts, and those after them, are ignored.
// Format:    parts, one after another: sizes of name and bytes (32 bits each), offset of the first byte
//            in the stream of the producer, name, bytes. The ByteHistory starts with a complete part.
//            A part without bytes: all that the producer had sent before its connection ended is in the
//            history. If the last part has no name, the stream has ended, and each producer
//            has such a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/data/stream/byte_history.h"

namespace stoker::data::stream {

class ProducerHistory {
 public:
  struct Part {
    std::string name;
    uint64_t offset = 0;  // in the stream of the producer
    uint64_t bytes = 0;
    uint64_t at = 0;  // of the bytes, in the ByteHistory
    uint64_t end() const { return offset + bytes; }
  };

  // The name of the part that ends the stream.
  static constexpr std::string_view kEndOfStream = "";

  explicit ProducerHistory(const ByteHistory& history) : history_(history) {}

  // A part; the oldest are discarded for it. One that is larger than the memory is not appended.
  void append(std::string_view name, uint64_t offset, std::span<const std::byte> bytes) const;
  // Of a part. False if they are not there any more.
  bool copy(uint64_t at, std::span<std::byte> out) const { return history_.copy(at, out); }

  // Only these parts, as copy_needed() returns them; the last ones, if that is too little memory.
  void assign(std::span<const std::byte> parts) const;
  // The required parts that have bytes; with `with_ends`, or if the stream has ended, also those without.
  std::vector<std::byte> copy_needed(const std::function<bool(const Part&)>& is_needed,
                                     bool with_ends = false) const;
  // Removes the parts without bytes, unless the stream has ended: what producers have sent since then
  // may be missing.
  void forget_ends() const;

  // What is known of each producer: contiguous parts, ascending. A part replaces what was known from
  // its offset on, because the producer continued there when it connected again. With kEndOfStream if
  // the stream has ended.
  std::map<std::string, std::vector<Part>> by_name() const;

 private:
  // The part at `at`; nullopt if there is none, or it is invalid.
  std::optional<Part> part_at(uint64_t at, uint64_t end) const;

  ByteHistory history_;
};

}  // namespace stoker::data::stream
