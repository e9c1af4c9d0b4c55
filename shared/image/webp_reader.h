// read_webp: decodes a lossy or lossless WebP with libwebp.
//
// Errors:   kCorrupt: corrupt (the format has no checksums, so corruption that still decodes is not
//           detected), truncated, an animation. kOutOfMemory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/row_sink.h"

namespace stoker::image {

std::string webp_version();  // of libwebp

Status read_webp(std::span<const std::byte> file, const DecodeLimits& limits,
                 const RowSink& target);

}  // namespace stoker::image
