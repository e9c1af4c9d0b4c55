// read_jpeg: decodes a JPEG with libjpeg-turbo.
//
// Errors: kCorrupt with the library's reason. Its warnings about lost or invalid picture data are
//         errors here: it would fill the rest with grey, and a model would learn that.
//         kOutOfMemory.
#pragma once

#include <cstddef>
#include <span>

#include "shared/base/status.h"
#include "shared/image/picture.h"
#include "shared/image/row_target.h"

namespace stoker::image {

Status read_jpeg(std::span<const std::byte> file, const Limits& limits, const RowTarget& target);

}  // namespace stoker::image
