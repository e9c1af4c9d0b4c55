// JpegReader: decodes JPEGs with libjpeg-turbo and reuses one decompressor.
//
// For a JPEG with restart markers (jpeg_region.h, add_restart_markers.h), only the required region
// is decoded.
//
// Threads:  one object per thread.
// Errors:   read(): kCorrupt with the library's reason. Warnings of libjpeg about lost or invalid
//           image data are treated as errors, because it would fill the missing area with gray and
//           a model would learn that. Data outside the requested region is not checked.
//           kOutOfMemory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/row_sink.h"

namespace stoker::image {

std::string jpeg_version();  // of libjpeg

class JpegReader {
 public:
  explicit JpegReader(const DecodeLimits& limits);
  ~JpegReader();

  Status read(std::span<const std::byte> file, const RowSink& target);

 private:
  class Decompressor;

  // Constant after construction.
  const DecodeLimits limits_;

  std::unique_ptr<Decompressor> decompressor_;  // null before the first image and after an error
  std::vector<std::byte> region_;               // buffer for an extracted region
};

}  // namespace stoker::image
