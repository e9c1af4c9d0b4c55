// example_writer: TFRecord files of tf.train.Examples for tests, valid or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/hash.h"

namespace stoker::data::testing {

template <typename Number>
std::string raw(Number number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

// A field of wire type 2.
inline std::string message(uint64_t number, std::string_view content) {
  return varint(number << 3 | 2) + varint(content.size()) + std::string(content);
}

inline std::string bytes_feature(std::string_view value) { return message(1, message(1, value)); }
inline std::string floats_feature(std::initializer_list<float> values) {
  std::string packed;
  for (const float value : values) packed += raw(value);
  return message(2, message(1, packed));
}
inline std::string ints_feature(std::initializer_list<int64_t> values) {
  std::string packed;
  for (const int64_t value : values) packed += varint(static_cast<uint64_t>(value));
  return message(3, message(1, packed));
}

using Features = std::vector<std::pair<std::string, std::string>>;

inline std::string example(const Features& features) {
  std::string map;
  for (const auto& [name, value] : features)
    map += message(1, message(1, name) + message(2, value));
  return message(1, map);
}

// A SequenceExample; each list contains the features of its steps.
using FeatureLists = std::vector<std::pair<std::string, std::vector<std::string>>>;

inline std::string sequence_example(const Features& context, const FeatureLists& lists) {
  std::string map;
  for (const auto& [name, steps] : lists) {
    std::string list;
    for (const std::string& step : steps) list += message(1, step);
    map += message(1, message(1, name) + message(2, list));
  }
  return example(context) + message(2, map);
}

inline std::string framed(std::string_view data) {
  const std::string length = raw<uint64_t>(data.size());
  return length + raw(masked_crc32c(length)) + std::string(data) + raw(masked_crc32c(data));
}

}  // namespace stoker::data::testing
