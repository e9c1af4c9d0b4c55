// JPEG pictures made and decoded by libjpeg alone: what the picture benchmark reads, and its peer.
//
// Threads: any.
// Errors:  libjpeg's own, as kCorrupt or kInternal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::bench {

// Smooth colours with edges and some noise, different for each `seed`: about as hard to decode as a
// photograph.
Result<std::string> make_jpeg(uint32_t width, uint32_t height, uint64_t seed);

// RGB, in full size; `pixels` is resized to fit.
Status decode_jpeg(std::span<const std::byte> jpeg, std::vector<std::byte>& pixels);

}  // namespace stoker::bench
