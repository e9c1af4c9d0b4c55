// JpegErrorHandler: what becomes of libjpeg's errors: a message that is kept, and a jump back to where
// setjmp(trap.place) was called last. Warnings about lost or invalid picture data are errors too.
//
// A function that calls setjmp(), and those between it and the library, hold nothing with a
// destructor.
//
// Threads: one object per thread.
// Owner:   must outlive the objects of the library that it watches, and not move.
// Errors:  error(): kCorrupt with the library's reason; kOutOfMemory.
#pragma once

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

// After <cstdio>.
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

  // Before and after jpeg_create_decompress(), and before jpeg_create_compress(): creating may fail.
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

// Of a JPEG whose header libjpeg has read: whether its colours are there in full, or in half the size along a side or both. The library's ways
// of leaving out rows and columns of other pictures have had their bugs.
bool has_standard_subsampling(const jpeg_decompress_struct& info);

// Of a picture in one scan.
JpegGrid jpeg_grid(const jpeg_decompress_struct& info);

}  // namespace stoker::image
