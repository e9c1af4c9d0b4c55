#include "shared/image/jpeg_reader.h"

#include <jpeglib.h>

#include <cstdio>  // jpeglib.h needs FILE
// Codes of the library's messages; after jpeglib.h.
#include <jerror.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace stoker::image {
namespace {

constexpr std::array<unsigned char, 2> kNoPicture{0xff, 0xd8};
// Upsampling looks at a neighbour, which must be there when only some columns are decoded.
constexpr uint32_t kColumnsBeside = 2;

}  // namespace

// As the library that is loaded tells it: it has no function for that.
std::string jpeg_version() {
  jpeg_error_mgr errors{};
  jpeg_std_error(&errors);
  return std::string("libjpeg ") + errors.jpeg_message_table[JMSG_VERSION] + ' ' +
         errors.jpeg_message_table[JMSG_COPYRIGHT];
}

// The library reports errors by longjmp: a function that calls setjmp here, and those between it
// and the library, hold nothing with a destructor.
//
// A decompressor that is used again would keep the quantisation and Huffman tables, and a picture
// without its own would be decoded with those of the one before. They lie in memory that the
// library means to keep for good; here it is given memory that lasts for one picture instead, so
// that the tables go with their picture.
class JpegReader::Decompressor {
 public:
  explicit Decompressor(const Limits& limits) : limits_(limits) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { self(info).fail(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !is_harmless(info->err->msg_code)) self(info).fail();
    };
    errors_.output_message = [](j_common_ptr) {};
    progress_.progress_monitor = [](j_common_ptr info) { self(info).check_scans(); };
    info_.client_data = this;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }  // fine for one that was never created
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  bool create() {
    if (setjmp(escape_) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.client_data = this;
    info_.progress = &progress_;
    constexpr uint64_t kMost = std::numeric_limits<long>::max();
    info_.mem->max_memory_to_use = static_cast<long>(std::min(limits_.memory_bytes, kMost));
    jpeg_mem_src(&info_, kNoPicture.data(), kNoPicture.size());  // the source is kept
    allocate_ = info_.mem->alloc_small;
    info_.mem->alloc_small = [](j_common_ptr info, int, size_t bytes) {
      return self(info).allocate_(info, JPOOL_IMAGE, bytes);
    };
    return true;
  }

  bool read_header(std::span<const std::byte> file) {
    if (setjmp(escape_) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // The colours; after read_header(). Gives no status where the library's errors do.
  Status choose_colours(uint32_t channels) {
    STOKER_RETURN_IF_ERROR(check_size(info_.image_height, info_.image_width, limits_));
    if (info_.num_components == 4) {
      info_.out_color_space = JCS_CMYK;
    } else if (info_.num_components == 1 || info_.num_components == 3) {
      info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    } else {
      return Status(Code::kCorrupt, std::to_string(info_.num_components) +
                                        " colour components; 1, 3 or 4 can be read");
    }
    return {};
  }

  // The smallest scale at which `box` covers the shape; `box` comes to be in pixels of that scale.
  bool choose_scale(const PictureShape& shape, Box& box) {
    if (setjmp(escape_) != 0) return false;
    uint32_t denominator = 1;
    const auto covers = [&](uint32_t by) {
      return std::ceil(box.height / by) >= shape.height && std::ceil(box.width / by) >= shape.width;
    };
    while (denominator < 8 && covers(denominator * 2)) denominator *= 2;
    info_.scale_num = 1;
    info_.scale_denom = denominator;
    jpeg_calc_output_dimensions(&info_);
    // Scaled sizes are rounded up: what reaches the edge still does.
    const double across = double(info_.output_width) / info_.image_width;
    const double down = double(info_.output_height) / info_.image_height;
    box = {.left = box.left * across,
           .top = box.top * down,
           .width = box.width * across,
           .height = box.height * down};
    return true;
  }

  bool start() {
    if (setjmp(escape_) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }

  // Decodes as little beside the rows and columns that the resizer needs as the library can.
  bool read_rows(const PictureShape& shape, Resizer& resizer) {
    if (setjmp(escape_) != 0) return false;
    const Resizer::Range rows = resizer.rows();
    const uint32_t left = skips() ? crop(resizer.columns()) : 0;
    resizer.expect_rows(size_t{info_.output_width} * static_cast<size_t>(info_.output_components),
                        left);
    if (skips() && rows.begin > 0) jpeg_skip_scanlines(&info_, rows.begin);
    while (info_.output_scanline < rows.end) {
      uint8_t* row = resizer.next_row();
      JSAMPROW destinations[1] = {row};
      jpeg_read_scanlines(&info_, destinations, 1);
      if (info_.output_scanline <= rows.begin) continue;
      if (info_.out_color_space == JCS_CMYK) {
        cmyk_to_rgb(row, info_.output_width);
        if (shape.channels == 1) rgb_to_grey(row, info_.output_width);
      }
      resizer.push();
    }
    forget();
    return true;
  }

  // Ready for another picture, with nothing of this one.
  void forget() {
    jpeg_abort_decompress(&info_);
    std::ranges::fill(info_.quant_tbl_ptrs, nullptr);
    std::ranges::fill(info_.dc_huff_tbl_ptrs, nullptr);
    std::ranges::fill(info_.ac_huff_tbl_ptrs, nullptr);
  }

  uint32_t height() const { return info_.image_height; }
  uint32_t width() const { return info_.image_width; }
  uint32_t scaled_height() const { return info_.output_height; }
  uint32_t scaled_width() const { return info_.output_width; }
  Status error() const {
    const bool memory = errors_.msg_code == JERR_OUT_OF_MEMORY && !past_memory_limit_;
    return Status(memory ? Code::kOutOfMemory : Code::kCorrupt, std::string("JPEG: ") + message_);
  }

 private:
  static Decompressor& self(j_common_ptr info) {
    return *static_cast<Decompressor*>(info->client_data);
  }

  // Warnings that cost no pixel.
  static bool is_harmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  }

  // Whether rows and columns may be left out: for the pictures that there are, in one scan and
  // sampled as everyone does. The library's ways through rarer ones have had their bugs.
  bool skips() {
    if (jpeg_has_multiple_scans(&info_) != 0) return false;
    for (int i = 0; i < info_.num_components; ++i) {
      const jpeg_component_info& component = info_.comp_info[i];
      const int most = i == 0 ? 2 : 1;
      if (component.h_samp_factor > most || component.v_samp_factor > most) return false;
    }
    return true;
  }

  // The column that decoded rows begin with.
  uint32_t crop(const Resizer::Range& columns) {
    JDIMENSION left = columns.begin - std::min(columns.begin, kColumnsBeside);
    JDIMENSION width = std::min(columns.end + kColumnsBeside, info_.output_width) - left;
    jpeg_crop_scanline(&info_, &left, &width);
    return left;
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

  const Limits limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  void* (*allocate_)(j_common_ptr, int pool, size_t bytes) = nullptr;
  std::jmp_buf escape_{};
  bool past_memory_limit_ = false;
  char message_[JMSG_LENGTH_MAX] = "";
};

JpegReader::JpegReader(const Limits& limits) : limits_(limits) {}
JpegReader::~JpegReader() = default;

Status JpegReader::read(std::span<const std::byte> file, const RowTarget& target) {
  // Taken out, so that one that has failed is not used again.
  auto jpeg = std::move(decompressor_);
  if (!jpeg) {
    jpeg = std::make_unique<Decompressor>(limits_);
    if (!jpeg->create()) return jpeg->error();
  }
  if (!jpeg->read_header(file)) return jpeg->error();
  STOKER_RETURN_IF_ERROR(jpeg->choose_colours(target.shape.channels).with_context("JPEG"));
  Box box = target.box(jpeg->height(), jpeg->width());
  if (!jpeg->choose_scale(target.shape, box)) return jpeg->error();
  target.resizer.begin(jpeg->scaled_height(), jpeg->scaled_width(), box, target.shape,
                       target.planes);
  if (!jpeg->start()) return jpeg->error();
  if (!jpeg->read_rows(target.shape, target.resizer)) return jpeg->error();
  decompressor_ = std::move(jpeg);
  return {};
}

}  // namespace stoker::image
