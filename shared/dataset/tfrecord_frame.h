// tfrecord_frame: the frame around each record of a TFRecord file.
//
// Format: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data;
//         little-endian.
// Errors: kCorrupt, saying which checksum is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/base/status.h"

namespace stoker::dataset {

constexpr uint64_t kFrameHead = 12;  // bytes before the data
constexpr uint64_t kFrameTail = 4;   // after it

// The length of the data that follows these kFrameHead bytes.
Result<uint64_t> frame_length(std::span<const std::byte> head);

// The data of a frame, checked. `bytes` begin with the frame, and may go on after it.
Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes);

}  // namespace stoker::dataset
