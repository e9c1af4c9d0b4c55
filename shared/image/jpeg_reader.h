// JpegReader: decodes JPEGs with libjpeg-turbo, one after the other with the same decompressor.
//
// Threads: one object per thread.
// Errors:  read(): kCorrupt with the library's reason. Its warnings about lost or invalid picture
//          data are errors here: it would fill the rest with grey, and a model would learn that.
//          What lies beyond the part that is wanted is not looked at. kOutOfMemory.
//
// Of a JPEG with restart markers (jpeg_region.h, add_restart_markers.h) only the part is decoded.
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

std::string jpeg_version();  // of the library

class JpegReader {
 public:
  explicit JpegReader(const DecodeLimits& limits);
  ~JpegReader();

  Status read(std::span<const std::byte> file, const RowSink& target);

 private:
  class Decompressor;

  // Constant after construction.
  const DecodeLimits limits_;

  std::unique_ptr<Decompressor> decompressor_;  // none before the first picture and after a bad one
  std::vector<std::byte> region_;               // what was cut out of a file, and room
};

}  // namespace stoker::image
