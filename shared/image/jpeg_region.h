// extract_jpeg_region: of a JPEG whose restart markers divide each row of blocks into pieces, a smaller JPEG of
// those pieces that a part of the picture touches, so that nothing beside the part is decoded.
//
// No piece depends on the one before it, so that pieces may be put together anew: the header with
// another height and width, then the pieces with markers numbered anew. Decoded they give the pixels
// of the whole picture, but for two at each edge that was cut: upsampling looks at neighbours.
//
// Threads: any.
// Errors:  none. What is not as it should be is not cut: who decodes it as a whole finds out why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stoker::image {

// How a JPEG in one scan is laid out, as its header says.
struct JpegGrid {
  uint32_t height = 0;  // of the picture, in pixels
  uint32_t width = 0;
  uint32_t unit_height = 0;  // pixels of what one unit (MCU) of the scan holds
  uint32_t unit_width = 0;
  uint32_t interval = 0;  // units from one restart marker to the next; 0: there are none
};

// Pixels from `top` and `left` on, up to before `bottom` and `right`.
struct PixelBounds {
  uint32_t top = 0;
  uint32_t left = 0;
  uint32_t bottom = 0;
  uint32_t right = 0;
};

// A part of a picture, as a file.
struct JpegRegion {
  std::span<const std::byte> file;
  uint32_t top = 0;  // where in the picture its first pixel lies
  uint32_t left = 0;
};

// A JPEG that holds at least `part`, which is not empty and inside the picture; it lies in `buffer`,
// which grows where it must. Nothing where there is nothing to leave out, or the file cannot be cut.
std::optional<JpegRegion> extract_jpeg_region(std::span<const std::byte> file, const JpegGrid& grid,
                                              const PixelBounds& region,
                                              std::vector<std::byte>& buffer);

}  // namespace stoker::image
