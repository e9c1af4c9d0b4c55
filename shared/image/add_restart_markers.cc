#include "shared/image/add_restart_markers.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <new>

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

// The largest interval that divides a row of MCUs.
uint32_t restart_interval(uint32_t units) {
  uint32_t interval = kMaxRestartInterval;
  while (units % interval != 0) --interval;
  return interval;
}

bool has_rewritable_size(uint32_t components, uint32_t height, uint32_t width,
                         const DecodeLimits& limits) {
  return (components == 1 || components == 3) && height >= kMinSide && width >= kMinSide &&
         check_size(height, width, limits).ok();
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
  // After an error: that of the process, not the limit of an image.
  bool is_out_of_memory() const {
    return error_handler_.error().code() == StatusCode::kOutOfMemory;
  }

 private:
  bool is_supported() const {
    return has_rewritable_size(static_cast<uint32_t>(in_.num_components), in_.image_height,
                               in_.image_width, error_handler_.limits()) &&
           has_standard_subsampling(in_);
  }

  JpegErrorHandler error_handler_;
  jpeg_decompress_struct in_{};
  jpeg_compress_struct out_{};
  jvirt_barray_ptr* coefficients_ = nullptr;  // owned by in_
  jpeg_destination_mgr destination_{};
};

// Markers are this byte, any number of times, and another.
constexpr std::byte kMarkerByte{0xff};
constexpr std::byte kStartOfImage{0xd8}, kEndOfImage{0xd9}, kStartOfScan{0xda};

bool has_length_field(std::byte marker) {
  const bool is_restart = std::byte{0xd0} <= marker && marker <= std::byte{0xd7};
  return !is_restart && marker != std::byte{0x00} && marker != std::byte{0x01};
}

// Baseline, progressive, … but not DHT, JPG and DAC.
bool is_frame(std::byte marker) {
  return std::byte{0xc0} <= marker && marker <= std::byte{0xcf} && marker != std::byte{0xc4} &&
         marker != std::byte{0xc8} && marker != std::byte{0xcc};
}

// What a frame header states.
struct JpegFrame {
  std::array<std::byte, 5> height_width_components{};
  uint32_t height() const { return number_at(0); }
  uint32_t width() const { return number_at(2); }
  uint32_t components() const { return std::to_integer<uint32_t>(height_width_components[4]); }
  bool operator==(const JpegFrame&) const = default;

 private:
  uint32_t number_at(size_t i) const {
    return std::to_integer<uint32_t>(height_width_components[i]) << 8 |
           std::to_integer<uint32_t>(height_width_components[i + 1]);
  }
};

// Of a header segment from its length field on.
std::optional<JpegFrame> parse_frame(std::span<const std::byte> segment) {
  constexpr size_t kBefore = 3;  // length and precision
  JpegFrame frame;
  if (segment.size() < kBefore + frame.height_width_components.size()) return {};
  std::copy_n(segment.begin() + kBefore, frame.height_width_components.size(),
              frame.height_width_components.begin());
  return frame;
}

// Skips what libjpeg skips, so that every file that can be rewritten has a frame.
std::optional<JpegFrame> find_frame(std::span<const std::byte> file) {
  if (file.size() < 2 || file[0] != kMarkerByte || file[1] != kStartOfImage) return {};
  size_t at = 2;
  while (true) {
    while (at < file.size() && file[at] != kMarkerByte) ++at;
    while (at < file.size() && file[at] == kMarkerByte) ++at;
    if (at >= file.size()) return {};
    const std::byte marker = file[at++];
    if (marker == kStartOfImage || marker == kEndOfImage || marker == kStartOfScan) return {};
    if (!has_length_field(marker)) continue;
    const std::span<const std::byte> rest = file.subspan(at);
    if (rest.size() < 2) return {};
    const size_t length = std::to_integer<size_t>(rest[0]) << 8 | std::to_integer<size_t>(rest[1]);
    if (length > rest.size()) return {};
    if (is_frame(marker)) return parse_frame(rest.first(length));
    at += std::max<size_t>(length, 2);  // libjpeg accepts less than the field itself
  }
}

}  // namespace

bool may_be_rewritten(std::span<const std::byte> file, const DecodeLimits& limits) {
  if (detect_format(file) != Format::kJpeg) return false;
  const auto frame = find_frame(file);
  if (!frame || !has_rewritable_size(frame->components(), frame->height(), frame->width(), limits))
    return false;
  // At least this many, with the strongest supported chroma subsampling.
  const uint64_t pixels = uint64_t{frame->height()} * frame->width();
  const uint64_t coefficients = frame->components() == 1 ? pixels : pixels + pixels / 2;
  return coefficients <= limits.memory_bytes / sizeof(JCOEF);
}

size_t max_rewritten_bytes(size_t file_bytes) { return file_bytes + file_bytes / 8 + 1024; }

bool is_possible_result(std::span<const std::byte> rewritten, std::span<const std::byte> file) {
  if (rewritten.size() > max_rewritten_bytes(file.size())) return false;
  const auto frame = find_frame(rewritten);
  return frame && frame == find_frame(file);
}

std::optional<std::vector<std::byte>> add_restart_markers(std::span<const std::byte> file,
                                                          const DecodeLimits& limits) {
  if (!may_be_rewritten(file, limits)) return {};
  Rewriter rewriter(limits);
  if (rewriter.read(file)) {
    std::vector<std::byte> rewritten(max_rewritten_bytes(file.size()));
    if (rewriter.write(rewritten)) {
      rewritten.resize(rewritten.size() - rewriter.remaining_bytes());
      return rewritten;
    }
  }
  if (rewriter.is_out_of_memory()) throw std::bad_alloc();
  return {};
}

}  // namespace stoker::image
