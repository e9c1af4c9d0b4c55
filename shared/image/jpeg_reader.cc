#include "shared/image/jpeg_reader.h"

#include <jpeglib.h>

#include <cstdio>  // jpeglib.h needs FILE
// Codes of the library's messages; after jpeglib.h.
#include <jerror.h>

#include <algorithm>
#include <csetjmp>
#include <cstdint>
#include <limits>
#include <string>

namespace stoker::image {
namespace {

// One picture. The library reports errors by longjmp: a function that calls setjmp here, and those
// between it and the library, hold nothing with a destructor. A fresh decompressor per picture,
// though one could be used again: it would keep the quantisation and Huffman tables, and a picture
// without its own would be decoded with those of the one before.
class JpegFile {
 public:
  explicit JpegFile(const Limits& limits) : limits_(limits) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { self(info).fail(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !is_harmless(info->err->msg_code)) self(info).fail();
    };
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = [](j_common_ptr info) { self(info).check_scans(); };
    info_.client_data = this;
  }
  ~JpegFile() { jpeg_destroy_decompress(&info_); }  // fine for one that was never created
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  bool read_header(std::span<const std::byte> file) {
    if (setjmp(escape_) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.client_data = this;
    info_.progress = &progress_;
    constexpr uint64_t kMost = std::numeric_limits<long>::max();
    info_.mem->max_memory_to_use = static_cast<long>(std::min(limits_.memory_bytes, kMost));
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // The colours and the scale that fit; after read_header(). Gives no status where the library's
  // errors do.
  Status choose_output(const PictureShape& shape) {
    STOKER_RETURN_IF_ERROR(check_size(info_.image_height, info_.image_width, limits_));
    if (info_.num_components == 4) {
      info_.out_color_space = JCS_CMYK;
    } else if (info_.num_components == 1 || info_.num_components == 3) {
      info_.out_color_space = shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    } else {
      return Status(Code::kCorrupt, std::to_string(info_.num_components) +
                                        " colour components; 1, 3 or 4 can be read");
    }
    info_.scale_num = 1;
    info_.scale_denom = 1;
    const auto covers = [&](uint32_t denom) {
      return (info_.image_height + denom - 1) / denom >= shape.height &&
             (info_.image_width + denom - 1) / denom >= shape.width;
    };
    while (info_.scale_denom < 8 && covers(info_.scale_denom * 2)) info_.scale_denom *= 2;
    return {};
  }

  bool start() {
    if (setjmp(escape_) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }

  // `row` has room for a row of the output.
  bool read_rows(const PictureShape& shape, uint8_t* row, RowResizer& resizer) {
    if (setjmp(escape_) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW rows[1] = {row};
      jpeg_read_scanlines(&info_, rows, 1);
      if (info_.out_color_space == JCS_CMYK) {
        cmyk_to_rgb(row, info_.output_width);
        if (shape.channels == 1) rgb_to_grey(row, info_.output_width);
      }
      resizer.push(row);
    }
    return true;
  }

  uint32_t height() const { return info_.output_height; }
  uint32_t width() const { return info_.output_width; }
  size_t row_bytes() const {
    return size_t{info_.output_width} * static_cast<size_t>(info_.output_components);
  }
  Status error() const {
    const bool memory = errors_.msg_code == JERR_OUT_OF_MEMORY && !past_memory_limit_;
    return Status(memory ? Code::kOutOfMemory : Code::kCorrupt, std::string("JPEG: ") + message_);
  }

 private:
  static JpegFile& self(j_common_ptr info) { return *static_cast<JpegFile*>(info->client_data); }

  // Warnings that cost no pixel.
  static bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  }

  [[noreturn]] void fail() {
    if (errors_.msg_code == JERR_NO_BACKING_STORE) {
      past_memory_limit_ = true;
      std::snprintf(message_, sizeof message_, "needs more than %llu bytes of memory to decode",
                    static_cast<unsigned long long>(limits_.memory_bytes));
    } else {
      errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message_);
    }
    std::longjmp(escape_, 1);
  }

  void check_scans() {
    if (info_.input_scan_number <= limits_.scans) return;
    std::snprintf(message_, sizeof message_, "more than %d scans", limits_.scans);
    std::longjmp(escape_, 1);
  }

  const Limits& limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_{};
  bool past_memory_limit_ = false;
  char message_[JMSG_LENGTH_MAX] = "";
};

}  // namespace

Status read_jpeg(std::span<const std::byte> file, const Limits& limits, const RowTarget& target) {
  JpegFile jpeg(limits);
  if (!jpeg.read_header(file)) return jpeg.error();
  STOKER_RETURN_IF_ERROR(jpeg.choose_output(target.shape).with_context("JPEG"));
  if (!jpeg.start()) return jpeg.error();
  target.resizer.begin(jpeg.height(), jpeg.width(), target.shape, target.planes);
  target.pixels.resize(std::max(jpeg.row_bytes(), target.pixels.size()));
  if (!jpeg.read_rows(target.shape, target.pixels.data(), target.resizer)) return jpeg.error();
  return {};
}

}  // namespace stoker::image
