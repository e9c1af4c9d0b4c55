// add_restart_markers: a JPEG rewritten, without loss, so that a part of it can be cut out and decoded
// alone (jpeg_region.h).
//
// The coefficients are those of the file, so the pixels are. They are written in one scan, as a
// progressive JPEG's are not, in codes made for them, and in pieces of a few units each; what is no
// picture (EXIF, colour profiles, comments) is left out. A photograph takes 1 to 3 % more room than
// in the best codes without markers, about what it took before.
//
// Threads:  any, concurrently.
// Blocking: computes, three milliseconds for a photograph of 200,000 pixels.
// Errors:   none. What cannot be rewritten, or is not worth it, is to stay as it is: damaged files,
//           CMYK, pictures of other samplings than usual, large ones (past `limits`) and small ones.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "shared/image/image_types.h"

namespace stoker::image {

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const DecodeLimits& limits);

}  // namespace stoker::image
