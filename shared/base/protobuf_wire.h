// The wire format of protocol buffers: the heads of the fields of a serialized message.
//
// Accepts only what protobuf's own writers produce: wire types varint, 64-bit, length-delimited, 32-bit; no
// groups, no field 0. The caller checks that a value is within its message.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace stoker::protobuf {

enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct FieldHead {
  uint64_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;  // of kVarint
  uint64_t size = 0;    // of the value behind the head, in bytes; 0 for kVarint
};

inline constexpr size_t kMaxVarint = 10;  // bytes
inline constexpr size_t kMaxHead = 2 * kMaxVarint;

// Consumes a varint from the front of `bytes`; false if there is none.
inline bool take_varint(std::span<const std::byte>& bytes, uint64_t& value) {
  uint64_t number = 0;
  for (size_t i = 0; i < std::min(bytes.size(), kMaxVarint); ++i) {
    const auto byte = std::to_integer<uint64_t>(bytes[i]);
    if (i == kMaxVarint - 1 && byte > 1) return false;  // more than 64 bits
    number |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      value = number;
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

// Consumes the head of a field from the front of `bytes`, of which kMaxHead are sufficient. Returns what is
// wrong with it; null: nothing.
inline const char* take_head(std::span<const std::byte>& bytes, FieldHead& head) {
  constexpr uint64_t kMaxNumber = 0x1fffffff;
  uint64_t key = 0;
  if (!take_varint(bytes, key) || key >> 3 == 0 || key >> 3 > kMaxNumber)
    return "invalid field tag";
  head = {.number = key >> 3, .type = static_cast<WireType>(key & 7)};
  switch (head.type) {
    case WireType::kVarint:
      return take_varint(bytes, head.varint) ? nullptr : "a number is invalid";
    case WireType::kFixed64:
      head.size = 8;
      return nullptr;
    case WireType::kBytes:
      return take_varint(bytes, head.size) ? nullptr : "a length is invalid";
    case WireType::kFixed32:
      head.size = 4;
      return nullptr;
  }
  return "a field of an unknown type";
}

}  // namespace stoker::protobuf
