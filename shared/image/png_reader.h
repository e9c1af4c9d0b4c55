// read_png: decodes a PNG with libspng.
//
// Errors: kCorrupt with the library's reason (checksums are checked); kOutOfMemory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/row_sink.h"

namespace stoker::image {

std::string png_version();  // of the library

Status read_png(std::span<const std::byte> file, const DecodeLimits& limits, const RowSink& target);

}  // namespace stoker::image
