#include "shared/image/jpeg_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "shared/image/jpeg_region.h"
#include "shared/image/libjpeg.h"
// Message codes of libjpeg; must follow jpeglib.h.
#include <jerror.h>

namespace stoker::image {
namespace {

constexpr std::array<unsigned char, 2> kEmptyJpeg{0xff, 0xd8};
// Chroma upsampling reads neighbors, which must be decoded in addition to the requested rows and
// columns.
constexpr uint32_t kJpegMargin = 2;

// The range and its neighbors, with coordinates multiplied by `scale`.
Resizer::Range with_jpeg_margin(const Resizer::Range& range, uint32_t scale, uint32_t end) {
  return {.begin = (range.begin - std::min(range.begin, kJpegMargin)) * scale,
          .end = std::min((range.end + kJpegMargin) * scale, end)};
}

}  // namespace

// Version of the loaded library, taken from its message table because there is no function for it.
std::string jpeg_version() {
  jpeg_error_mgr errors{};
  jpeg_std_error(&errors);
  return std::string("libjpeg ") + errors.jpeg_message_table[JMSG_VERSION] + ' ' +
         errors.jpeg_message_table[JMSG_COPYRIGHT];
}

// A reused decompressor keeps its quantization and Huffman tables, so an image without tables would
// be decoded with those of the previous image. libjpeg allocates them in its permanent pool.
// Redirecting these allocations to the per-image pool frees the tables with their image.
class JpegReader::Decompressor : private JpegErrorHandler {
 public:
  explicit Decompressor(const DecodeLimits& limits) : JpegErrorHandler(limits) {}
  ~Decompressor() { jpeg_destroy_decompress(&info_); }  // a no-op if it was never created

  bool create() {
    watch_creation(reinterpret_cast<j_common_ptr>(&info_));
    if (setjmp(jump_buffer) != 0) return false;
    jpeg_create_decompress(&info_);
    watch(info_);
    jpeg_mem_src(&info_, kEmptyJpeg.data(), kEmptyJpeg.size());  // the data source object is kept
    allocate_ = info_.mem->alloc_small;
    info_.mem->alloc_small = [](j_common_ptr info, int, size_t bytes) {
      return static_cast<Decompressor&>(of(info)).allocate_(info, JPOOL_IMAGE, bytes);
    };
    return true;
  }

  bool read_header(std::span<const std::byte> file) {
    if (setjmp(jump_buffer) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  // Selects the output colors; after read_header(). It calls no libjpeg function and therefore
  // returns a Status.
  Status choose_colors(uint32_t channels) {
    STOKER_RETURN_IF_ERROR(check_size(info_.image_height, info_.image_width, limits()));
    if (info_.num_components == 4) {
      info_.out_color_space = JCS_CMYK;
    } else if (info_.num_components == 1 || info_.num_components == 3) {
      info_.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    } else {
      return Status(StatusCode::kCorrupt,
                    std::to_string(info_.num_components) + " color components; must be 1, 3 or 4");
    }
    return {};
  }

  // Selects the smallest scale at which `box` covers the shape, and converts `box` to pixels of
  // that scale.
  bool choose_scale(const ImageShape& shape, CropBox& box) {
    if (setjmp(jump_buffer) != 0) return false;
    uint32_t denominator = 1;
    const auto covers = [&](uint32_t by) {
      return std::ceil(box.height / by) >= shape.height && std::ceil(box.width / by) >= shape.width;
    };
    while (denominator < 8 && covers(denominator * 2)) denominator *= 2;
    set_scale(denominator);
    // Scaled sizes are rounded up, so the factors keep a box at the image edge at the edge.
    const double across = double(info_.output_width) / info_.image_width;
    const double down = double(info_.output_height) / info_.image_height;
    box = {.left = box.left * across,
           .top = box.top * down,
           .width = box.width * across,
           .height = box.height * down};
    return true;
  }

  // Extracts the region of `file` (the file being read) that the resizer needs as a separate JPEG
  // in `buffer`; after choose_scale().
  std::optional<JpegRegion> extract_region(std::span<const std::byte> file, const Resizer& resizer,
                                           std::vector<std::byte>& buffer) {
    if (info_.restart_interval == 0 || !can_skip()) return {};
    const auto rows = with_jpeg_margin(resizer.rows(), info_.scale_denom, info_.image_height);
    const auto columns = with_jpeg_margin(resizer.columns(), info_.scale_denom, info_.image_width);
    const PixelBounds region{
        .top = rows.begin, .left = columns.begin, .bottom = rows.end, .right = columns.end};
    return extract_jpeg_region(file, jpeg_grid(info_), region, buffer);
  }

  // Continues with an extracted region in place of the file, with the same colors and scale.
  bool read_region(const JpegRegion& region) {
    const J_COLOR_SPACE colors = info_.out_color_space;
    const uint32_t denominator = info_.scale_denom;
    reset();
    if (!read_header(region.file) || setjmp(jump_buffer) != 0) return false;
    info_.out_color_space = colors;
    set_scale(denominator);
    top_ = region.top / denominator;
    left_ = region.left / denominator;
    return true;
  }

  bool start() {
    if (setjmp(jump_buffer) != 0) return false;
    jpeg_start_decompress(&info_);
    return true;
  }

  // Decodes as few rows and columns outside those that the resizer needs as the library permits.
  bool read_rows(const ImageShape& shape, Resizer& resizer) {
    if (setjmp(jump_buffer) != 0) return false;
    const Resizer::Range rows = shifted(resizer.rows(), top_);
    const uint32_t left = can_skip() ? crop(shifted(resizer.columns(), left_)) : 0;
    resizer.expect_rows(size_t{info_.output_width} * static_cast<size_t>(info_.output_components),
                        left_ + left);
    if (can_skip() && rows.begin > 0) jpeg_skip_scanlines(&info_, rows.begin);
    while (info_.output_scanline < rows.end) {
      uint8_t* row = resizer.next_row();
      JSAMPROW destinations[1] = {row};
      jpeg_read_scanlines(&info_, destinations, 1);
      if (info_.output_scanline <= rows.begin) continue;
      if (info_.out_color_space == JCS_CMYK) {
        cmyk_to_rgb(row, info_.output_width);
        if (shape.channels == 1) rgb_to_gray(row, info_.output_width);
      }
      resizer.push();
    }
    reset();
    return true;
  }

  // Prepares for the next image and discards all state of this one.
  void reset() {
    jpeg_abort_decompress(&info_);
    top_ = left_ = 0;
    std::ranges::fill(info_.quant_tbl_ptrs, nullptr);
    std::ranges::fill(info_.dc_huff_tbl_ptrs, nullptr);
    std::ranges::fill(info_.ac_huff_tbl_ptrs, nullptr);
  }

  uint32_t height() const { return info_.image_height; }
  uint32_t width() const { return info_.image_width; }
  uint32_t scaled_height() const { return info_.output_height; }
  uint32_t scaled_width() const { return info_.output_width; }
  using JpegErrorHandler::error;

 private:
  // True if rows and columns can be skipped.
  bool can_skip() {
    return jpeg_has_multiple_scans(&info_) == 0 && has_standard_subsampling(info_);
  }

  void set_scale(uint32_t denominator) {
    info_.scale_num = 1;
    info_.scale_denom = denominator;
    jpeg_calc_output_dimensions(&info_);
  }

  static Resizer::Range shifted(const Resizer::Range& range, uint32_t by) {
    return {.begin = range.begin - by, .end = range.end - by};
  }

  // Crops the decoded rows; returns their first column.
  uint32_t crop(const Resizer::Range& columns) {
    const auto range = with_jpeg_margin(columns, 1, info_.output_width);
    JDIMENSION left = range.begin, width = range.end - range.begin;
    jpeg_crop_scanline(&info_, &left, &width);
    return left;
  }

  jpeg_decompress_struct info_{};
  uint32_t top_ = 0, left_ = 0;  // offset of the extracted region in scaled pixels of the image
  void* (*allocate_)(j_common_ptr, int pool, size_t bytes) = nullptr;
};

JpegReader::JpegReader(const DecodeLimits& limits) : limits_(limits) {}
JpegReader::~JpegReader() = default;

Status JpegReader::read(std::span<const std::byte> file, const RowSink& target) {
  // Moved out, so that a decompressor that failed is not reused.
  auto jpeg = std::move(decompressor_);
  if (!jpeg) {
    jpeg = std::make_unique<Decompressor>(limits_);
    if (!jpeg->create()) return jpeg->error();
  }
  if (!jpeg->read_header(file)) return jpeg->error();
  STOKER_RETURN_IF_ERROR(jpeg->choose_colors(target.shape.channels).with_context("JPEG"));
  CropBox box = target.box(jpeg->height(), jpeg->width());
  if (!jpeg->choose_scale(target.shape, box)) return jpeg->error();
  target.resizer.begin(jpeg->scaled_height(), jpeg->scaled_width(), box, target.shape,
                       target.planes, target.interpolation);
  const auto region = jpeg->extract_region(file, target.resizer, region_);
  if (region && !jpeg->read_region(*region)) return jpeg->error();
  if (!jpeg->start()) return jpeg->error();
  if (!jpeg->read_rows(target.shape, target.resizer)) return jpeg->error();
  decompressor_ = std::move(jpeg);
  return {};
}

}  // namespace stoker::image
