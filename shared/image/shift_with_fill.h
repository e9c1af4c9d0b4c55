// shift: moves a picture within its frame, in place; what comes in from outside is black.
//
// Threads: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// The pixel at (y, x) becomes the one that was at (y + down, x + across). `planes`: shape.bytes()
// bytes; both distances are less than the picture's side.
void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes);

}  // namespace stoker::image
