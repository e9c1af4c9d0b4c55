// mirror: a picture's left becomes its right, in place.
//
// Threads: a pure function.
#pragma once

#include <cstddef>
#include <span>

#include "shared/image/picture.h"

namespace stoker::image {

// `planes`: shape.bytes() bytes.
void mirror(const PictureShape& shape, std::span<std::byte> planes);

}  // namespace stoker::image
