// number_format: numbers as text, for files and messages. Independent of the locale.
//
// Threads: pure functions.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace stoker {

// The shortest digits from which the same number is read: "0.1".
template <typename Number>
std::string format_shortest(Number number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

// At most 17 significant digits, as "%.17g": different numbers have different texts, "0.10000000000000001". A
// change would invalidate stored fingerprints.
inline std::string format_exact(double value) {
  std::array<char, 32> text;
  const auto format = std::chars_format::general;
  return {text.data(),
          std::to_chars(text.data(), text.data() + text.size(), value, format, 17).ptr};
}

// "3 MiB", rounded up: of a need and what is left, rounded down, a message then has two different numbers.
inline std::string format_mib(uint64_t bytes) {
  return std::to_string((bytes >> 20) + ((bytes & ((1u << 20) - 1)) != 0 ? 1 : 0)) + " MiB";
}

}  // namespace stoker
