// Sizes in messages.
#pragma once

#include <cstdint>
#include <string>

namespace stoker {

// "3 MiB", rounded up: of a need and what is left, rounded down, a message then has two different numbers.
inline std::string mib_text(uint64_t bytes) {
  return std::to_string((bytes >> 20) + ((bytes & ((1u << 20) - 1)) != 0 ? 1 : 0)) + " MiB";
}

}  // namespace stoker
