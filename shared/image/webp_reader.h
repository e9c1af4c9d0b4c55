// read_webp: decodes a WebP, lossy or lossless, with libwebp.
//
// Errors: kCorrupt: damaged (the format has no checksums: damage that still makes a picture is not
//         seen), cut off, an animation. kOutOfMemory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/row_sink.h"

namespace stoker::image {

std::string webp_version();  // of the library

Status read_webp(std::span<const std::byte> file, const DecodeLimits& limits,
                 const RowSink& target);

}  // namespace stoker::image
