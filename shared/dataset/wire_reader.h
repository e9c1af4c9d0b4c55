// WireReader: goes through the fields of one encoded protobuf message, without reading those it is
// not asked for.
//
// Only what protobuf's own writers write is accepted: wire types varint, 64-bit, length-delimited,
// 32-bit; no groups, no field 0, every length within its message.
//
// Threads: one at a time.
// Errors:  kCorrupt, naming the byte within the source; those of the source.
#pragma once

#include <cstdint>
#include <span>

#include "shared/base/status.h"
#include "shared/dataset/byte_source.h"

namespace stoker::dataset {

struct WireField {
  enum class Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint64_t number = 0;
  Type type = Type::kVarint;
  uint64_t varint = 0;  // of kVarint
  uint64_t begin = 0;   // of the value, in the source
  uint64_t size = 0;    // of the value, in bytes
};

class WireReader {
 public:
  explicit WireReader(ByteSource& source) : WireReader(source, 0, source.size()) {}
  // The message in a part of the source.
  WireReader(ByteSource& source, uint64_t begin, uint64_t size)
      : source_(source), at_(begin), end_(begin + size) {}

  // The next field; false at the end of the message.
  Result<bool> next(WireField& field);

 private:
  ByteSource& source_;
  uint64_t at_;
  const uint64_t end_;
};

// Takes a varint off the front of `bytes`; false where there is none.
bool take_varint(std::span<const std::byte>& bytes, uint64_t& value);

}  // namespace stoker::dataset
