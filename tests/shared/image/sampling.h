// Sampling: a JPEG variant and its name in tests.
#pragma once

#include <cstdint>
#include <ostream>

#include "tests/shared/image/image_files.h"

namespace stoker::image::testing {

struct Sampling {
  const char* name;
  uint32_t channels;  // of the file
  JpegOptions options;
};
inline void PrintTo(const Sampling& sampling, std::ostream* out) { *out << sampling.name; }

}  // namespace stoker::image::testing
