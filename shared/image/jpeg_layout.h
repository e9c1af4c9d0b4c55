// How a JPEG is laid out, as libjpeg has read it in its header.
//
// Threads: functions of their arguments.
// Errors:  none.
#pragma once

#include <cstdio>  // jpeglib.h needs FILE

// After <cstdio>.
#include <jpeglib.h>

#include "shared/image/jpeg_region.h"

namespace stoker::image {

// Whether its colours are there in full, or in half the size along a side or both. The library's ways
// of leaving out rows and columns of other pictures have had their bugs.
bool has_standard_subsampling(const jpeg_decompress_struct& info);

// Of a picture in one scan.
JpegGrid jpeg_grid(const jpeg_decompress_struct& info);

}  // namespace stoker::image
