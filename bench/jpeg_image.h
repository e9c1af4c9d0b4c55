// Generates and decodes JPEG images with libjpeg alone, for the image benchmark and its baseline.
//
// Threads: any.
// Errors:  those of libjpeg, as kCorrupt or kInternal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::bench {

// Smooth colors with edges and some noise, different for each `seed`; about as expensive to decode
// as a photograph.
Result<std::string> make_jpeg(uint32_t width, uint32_t height, uint64_t seed);

// Decodes to RGB in full size; `pixels` is resized to fit.
Status decode_jpeg(std::span<const std::byte> jpeg, std::vector<std::byte>& pixels);

}  // namespace stoker::bench
