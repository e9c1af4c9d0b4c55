// add_restart_markers: losslessly rewrites a JPEG so that a region of it can be extracted and
// decoded alone (jpeg_region.h).
//
// The DCT coefficients, and therefore the pixels, are unchanged. They are written in one scan (also
// those of a progressive JPEG), with optimized Huffman tables and with restart intervals of a few
// MCUs. Metadata (EXIF, color profiles, comments) is dropped. A photograph becomes 1 to 3 % larger
// than with optimized tables and no markers, which is about its original size.
//
// Threads:  any, concurrently.
// Blocking: CPU-bound, three milliseconds for a photograph of 200,000 pixels.
// Errors:   std::bad_alloc. Returns nothing if the file cannot be rewritten or is not worth it, and
//           the caller keeps the original: corrupt files, CMYK, uncommon chroma subsampling, images
//           larger than `limits`, small images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shared/image/image_types.h"

namespace stoker::image {

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const DecodeLimits& limits);

// For packed caches. The memory is that of the coefficients of one image: a JPEG of more than 20
// million pixels is not rewritten.
inline constexpr DecodeLimits kRewritingLimits{.memory_bytes = uint64_t{128} << 20};

// False: the header says that the file is never rewritten, because it is not a JPEG, too small or too
// large. Does not decode it.
bool may_be_rewritten(std::span<const std::byte> file, const DecodeLimits& limits);

// Maximum size of the result; an image that exceeds it is not worth rewriting.
size_t max_rewritten_bytes(size_t file_bytes);

// Whether bytes of an untrusted process can be the result for `file`: a JPEG of at most this size
// whose header states the same height, width and number of components. Does not decode them.
bool is_possible_result(std::span<const std::byte> rewritten, std::span<const std::byte> file);

}  // namespace stoker::image
