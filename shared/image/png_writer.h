// encode_png: pixels as the bytes of a PNG file.
//
// Threads: a function of its arguments.
// Errors:  kInvalidArgument: the pixels are not so many; kOutOfMemory; kInternal.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "shared/base/status.h"

namespace stoker::image {

// `rgb`: rows from the top, three bytes a pixel.
Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height);

}  // namespace stoker::image
