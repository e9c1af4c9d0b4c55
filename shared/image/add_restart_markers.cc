#include "shared/image/add_restart_markers.h"

#include <csetjmp>
#include <cstdint>

#include "shared/image/libjpeg.h"
// Message codes of libjpeg; must follow jpeglib.h.
#include <jerror.h>

#include "shared/image/row_sink.h"

namespace stoker::image {
namespace {

// Images with a shorter side below this (pixels) are decoded faster than a region is extracted.
constexpr uint32_t kMinSide = 96;
// MCUs per restart interval, at most. Shorter intervals fit a region more closely but take more
// space.
constexpr uint32_t kMaxRestartInterval = 4;

// Upper limit for the rewritten size; an image that exceeds it is not worth rewriting.
size_t max_bytes(size_t file) { return file + file / 8 + 1024; }

// The largest interval that divides a row of MCUs.
uint32_t restart_interval(uint32_t units) {
  uint32_t interval = kMaxRestartInterval;
  while (units % interval != 0) --interval;
  return interval;
}

class Rewriter {
 public:
  explicit Rewriter(const DecodeLimits& limits) : error_handler_(limits) {}
  ~Rewriter() {
    jpeg_destroy_compress(&out_);  // a no-op if it was never created
    jpeg_destroy_decompress(&in_);
  }
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  bool read(std::span<const std::byte> file) {
    error_handler_.watch_creation(reinterpret_cast<j_common_ptr>(&in_));
    error_handler_.watch_creation(reinterpret_cast<j_common_ptr>(&out_));
    if (setjmp(error_handler_.jump_buffer) != 0) return false;
    jpeg_create_decompress(&in_);
    error_handler_.watch(in_);
    jpeg_mem_src(&in_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&in_, TRUE);
    if (!is_supported()) return false;
    coefficients_ = jpeg_read_coefficients(&in_);
    return true;
  }

  // Writes into `buffer`. Also false if the buffer is too small.
  bool write(std::span<std::byte> buffer) {
    destination_.next_output_byte = reinterpret_cast<JOCTET*>(buffer.data());
    destination_.free_in_buffer = buffer.size();
    destination_.init_destination = destination_.term_destination = [](j_compress_ptr) {};
    destination_.empty_output_buffer = [](j_compress_ptr info) -> boolean {
      info->err->msg_code = JERR_FILE_WRITE;
      info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
      return FALSE;
    };
    if (setjmp(error_handler_.jump_buffer) != 0) return false;
    jpeg_create_compress(&out_);
    out_.dest = &destination_;
    jpeg_copy_critical_parameters(&in_, &out_);
    out_.optimize_coding = TRUE;
    const JpegGrid grid = jpeg_grid(in_);
    out_.restart_interval = restart_interval((grid.width + grid.unit_width - 1) / grid.unit_width);
    jpeg_write_coefficients(&out_, coefficients_);
    jpeg_finish_compress(&out_);
    jpeg_finish_decompress(&in_);
    return true;
  }

  size_t remaining_bytes() const { return destination_.free_in_buffer; }

 private:
  bool is_supported() const {
    if (in_.num_components != 1 && in_.num_components != 3) return false;
    return in_.image_height >= kMinSide && in_.image_width >= kMinSide &&
           has_standard_subsampling(in_) &&
           check_size(in_.image_height, in_.image_width, error_handler_.limits()).ok();
  }

  JpegErrorHandler error_handler_;
  jpeg_decompress_struct in_{};
  jpeg_compress_struct out_{};
  jvirt_barray_ptr* coefficients_ = nullptr;  // owned by in_
  jpeg_destination_mgr destination_{};
};

}  // namespace

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const DecodeLimits& limits) {
  if (detect_format(file) != Format::kJpeg) return {};
  Rewriter rewriter(limits);
  if (!rewriter.read(file)) return {};
  std::vector<std::byte> rewritten(max_bytes(file.size()));
  if (!rewriter.write(rewritten)) return {};
  rewritten.resize(rewritten.size() - rewriter.remaining_bytes());
  return rewritten;
}

}  // namespace stoker::image
