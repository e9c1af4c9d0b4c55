// ProtobufMessage: a protobuf message under construction. Each field is a key (its number and wire
// type) and a value.
//
// Threads: values.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace stoker::metrics {

static_assert(std::endian::native == std::endian::little, "protobuf is little endian");

class ProtobufMessage {
 public:
  ProtobufMessage& varint(uint32_t field, uint64_t value) {
    put_varint(field << 3 | 0);
    put_varint(value);
    return *this;
  }
  ProtobufMessage& fixed64(uint32_t field, double value) {
    put_varint(field << 3 | 1);
    put_raw(value);
    return *this;
  }
  ProtobufMessage& fixed32(uint32_t field, float value) {
    put_varint(field << 3 | 5);
    put_raw(value);
    return *this;
  }
  ProtobufMessage& bytes(uint32_t field, std::string_view value) {
    put_varint(field << 3 | 2);
    put_varint(value.size());
    out_ += value;
    return *this;
  }
  ProtobufMessage& message(uint32_t field, const ProtobufMessage& value) {
    return bytes(field, value.out_);
  }
  // A packed list.
  ProtobufMessage& doubles(uint32_t field, std::span<const double> values) {
    return bytes(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  const std::string& encoded() const { return out_; }

 private:
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  template <typename T>
  void put_raw(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    out_.append(raw, sizeof raw);
  }
  std::string out_;
};

}  // namespace stoker::metrics
