// horizontal_flip: a picture's left becomes its right, in place.
//
// Threads: a pure function.
#pragma once

#include <cstddef>
#include <span>

#include "shared/image/image_types.h"

namespace stoker::image {

// `planes`: shape.bytes() bytes.
void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes);

}  // namespace stoker::image
