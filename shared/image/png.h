// png: reads and writes PNG files with libspng.
//
// Errors:   read_png(): kCorrupt with the library's reason (checksums are verified); kOutOfMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/row_sink.h"

namespace stoker::image {

std::string png_version();  // of libspng

// The index of each pixel in the palette, or its gray level, without conversion; target.shape has one
// channel. kCorrupt also for an image with more channels, or with more than 8 bits.
Status read_png_classes(std::span<const std::byte> file, const DecodeLimits& limits,
                        const RowSink& target);

Status read_png(std::span<const std::byte> file, const DecodeLimits& limits, const RowSink& target);

// `rgb`: rows from the top, three bytes per pixel. kInvalidArgument: the number of bytes does not
// match the size; kOutOfMemory; kInternal.
Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height);

}  // namespace stoker::image
