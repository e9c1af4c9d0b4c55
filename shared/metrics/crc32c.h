// crc32c: the checksum of TFRecord frames (Castagnoli polynomial).
#pragma once

#include <cstdint>
#include <string_view>

namespace stoker::metrics {

uint32_t crc32c(std::string_view bytes);

// As TFRecord stores it: rotated and shifted, so that a checksum over bytes that hold checksums
// stays useful.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace stoker::metrics
