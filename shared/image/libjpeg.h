// JpegErrorHandler: stores the message of a libjpeg error and jumps back to the last
// setjmp(jump_buffer). Warnings about lost or invalid image data are errors too.
//
// A function that calls setjmp(), and all functions between it and the library, must not have local
// variables with destructors.
//
// Threads:   one object per thread.
// Ownership: must outlive the libjpeg objects that it watches, and must not be moved.
// Errors:    error(): kCorrupt with the library's reason; kOutOfMemory.
#pragma once

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

// Must follow <cstdio>.
#include <jpeglib.h>

#include "shared/base/status.h"
#include "shared/image/image_types.h"
#include "shared/image/jpeg_region.h"

namespace stoker::image {

class JpegErrorHandler {
 public:
  explicit JpegErrorHandler(const DecodeLimits& limits);
  JpegErrorHandler(const JpegErrorHandler&) = delete;
  JpegErrorHandler& operator=(const JpegErrorHandler&) = delete;

  // Call watch_creation() before jpeg_create_decompress() and jpeg_create_compress(), which can
  // fail, and watch() after jpeg_create_decompress().
  void watch_creation(j_common_ptr info);
  void watch(jpeg_decompress_struct& info);

  Status error() const;
  const DecodeLimits& limits() const { return limits_; }

  std::jmp_buf jump_buffer{};

 protected:
  static JpegErrorHandler& of(j_common_ptr info) {
    return *static_cast<JpegErrorHandler*>(info->client_data);
  }

 private:
  [[noreturn]] void fail(j_common_ptr info);
  void check_scans(const jpeg_decompress_struct& info);

  const DecodeLimits limits_;
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  bool past_memory_limit_ = false;
  char message_[JMSG_LENGTH_MAX] = "";
};

// True for a JPEG with a parsed header whose chroma is full resolution, or half of it in one or
// both dimensions. libjpeg's functions for skipping rows and columns have had bugs with other
// subsamplings.
bool has_standard_subsampling(const jpeg_decompress_struct& info);

// For a single-scan image.
JpegGrid jpeg_grid(const jpeg_decompress_struct& info);

}  // namespace stoker::image
