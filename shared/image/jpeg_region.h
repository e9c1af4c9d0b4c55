// extract_jpeg_region: extracts a region of a JPEG with restart markers as a smaller JPEG, so that
// nothing outside the region is decoded. The markers must divide each row of MCUs into restart
// intervals of equal length; the result contains the intervals that intersect the region.
//
// Restart intervals do not depend on each other and can therefore be recombined: the header with a
// new height and width, then the intervals with renumbered markers. The decoded pixels are equal to
// those of the complete image, except for two pixels at each cut edge, because upsampling reads
// neighbors.
//
// Threads:  any.
// Errors:   none. Returns nothing for an unexpected file; decoding the complete file then reports
//           the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace stoker::image {

// Layout of a single-scan JPEG, from its header.
struct JpegGrid {
  uint32_t height = 0;  // of the image, in pixels
  uint32_t width = 0;
  uint32_t unit_height = 0;  // size of an MCU in pixels
  uint32_t unit_width = 0;
  uint32_t interval = 0;  // MCUs per restart interval; 0: no restart markers
};

// In pixels; `bottom` and `right` are exclusive.
struct PixelBounds {
  uint32_t top = 0;
  uint32_t left = 0;
  uint32_t bottom = 0;
  uint32_t right = 0;
};

// A region of an image, as a JPEG file.
struct JpegRegion {
  std::span<const std::byte> file;
  uint32_t top = 0;  // position of its first pixel in the image
  uint32_t left = 0;
};

// A JPEG that contains at least `region`, which must be nonempty and inside the image. It is stored
// in `buffer`, which is enlarged if necessary. Returns nothing if there is nothing to omit or the
// file is not supported.
std::optional<JpegRegion> extract_jpeg_region(std::span<const std::byte> file, const JpegGrid& grid,
                                              const PixelBounds& region,
                                              std::vector<std::byte>& buffer);

}  // namespace stoker::image
