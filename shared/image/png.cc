#include "shared/image/png.h"

#include <spng.h>

#include <cstdlib>
#include <memory>
#include <vector>

namespace stoker::image {
namespace {

constexpr size_t kMaxChunkBytes = size_t{64} << 20;  // of ancillary chunks: texts, color profiles
// Deflate compresses at most 1032 bytes into one. A smaller file cannot contain the image that its
// header declares.
constexpr uint64_t kMaxPacked = 1040;

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using Context = std::unique_ptr<spng_ctx, FreeContext>;

Status png_error(int error) {
  const StatusCode code = error == SPNG_EMEM ? StatusCode::kOutOfMemory : StatusCode::kCorrupt;
  return Status(code, std::string("PNG: ") + spng_strerror(error));
}

uint32_t samples_of(uint8_t color_type) {
  switch (color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
      return 3;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return 2;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return 4;
    default:
      return 1;
  }
}

// Checks the dimensions, and the file size against them, before memory is allocated.
Status check_header(const spng_ihdr& header, size_t file_bytes, const DecodeLimits& limits) {
  STOKER_RETURN_IF_ERROR(check_size(header.height, header.width, limits).with_context("PNG"));
  const uint64_t pixels = uint64_t{header.height} * header.width;
  const uint64_t packed_bits = pixels * samples_of(header.color_type) * header.bit_depth;
  if (packed_bits / 8 / kMaxPacked > file_bytes) {
    return Status(StatusCode::kCorrupt,
                  "PNG: " + std::to_string(file_bytes) + " bytes are too few for the " +
                      std::to_string(header.width) + "x" + std::to_string(header.height) +
                      " pixels of the header");
  }
  if (pixels * 3 > limits.memory_bytes && header.interlace_method != 0) {
    return Status(StatusCode::kCorrupt, "PNG: interlaced, and needs more than " +
                                            std::to_string(limits.memory_bytes) +
                                            " bytes of memory to decode");
  }
  return {};
}

// Rows are decoded sequentially: those above the region have to be decoded too, those below do not.
Status read_row_by_row(spng_ctx* context, const spng_ihdr& header, const RowSink& target) {
  const size_t row_bytes = size_t{header.width} * 3;
  const auto [begin, end] = target.resizer.rows();
  target.resizer.expect_rows(row_bytes, 0);
  if (const int error =
          spng_decode_image(context, nullptr, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE))
    return png_error(error);
  for (uint32_t y = 0; y < end; ++y) {
    uint8_t* row = target.resizer.next_row();
    const int error = spng_decode_row(context, row, row_bytes);
    // The last row is returned with SPNG_EOI.
    if (error != 0 && !(error == SPNG_EOI && y + 1 == header.height)) return png_error(error);
    if (y < begin) continue;
    if (target.shape.channels == 1) rgb_to_gray(row, header.width);
    target.resizer.push();
  }
  return {};
}

// Interlaced: every pass covers the complete image, so all of it has to be decoded.
Status read_interlaced(spng_ctx* context, const spng_ihdr& header, const RowSink& target) {
  const size_t row_bytes = size_t{header.width} * 3;
  std::vector<uint8_t> image(row_bytes * header.height);
  if (const int error = spng_decode_image(context, image.data(), image.size(), SPNG_FMT_RGB8, 0))
    return png_error(error);
  push_rows(
      {.pixels = image.data(), .row_bytes = row_bytes, .top = 0, .left = 0, .width = header.width},
      target);
  return {};
}

// Prepares for decoding, and reads the header.
Status open_png(spng_ctx* context, std::span<const std::byte> file, const DecodeLimits& limits,
                spng_ihdr& header) {
  if (context == nullptr) return png_error(SPNG_EMEM);
  if (const int error = spng_set_chunk_limits(context, kMaxChunkBytes, kMaxChunkBytes))
    return png_error(error);
  // A corrupt text or color profile does not affect pixels.
  if (const int error = spng_set_crc_action(context, SPNG_CRC_ERROR, SPNG_CRC_DISCARD))
    return png_error(error);
  if (const int error = spng_set_png_buffer(context, file.data(), file.size()))
    return png_error(error);
  if (const int error = spng_get_ihdr(context, &header)) return png_error(error);
  return check_header(header, file.size(), limits);
}

// Pixels of 1, 2, 4 or 8 bits, the first one in the upper bits of a byte.
void unpack_row(const uint8_t* packed, uint32_t bits, uint32_t width, uint8_t* row) {
  const uint32_t mask = (1u << bits) - 1;
  for (uint32_t x = 0; x < width; ++x) {
    const size_t bit = size_t{x} * bits;
    row[x] = static_cast<uint8_t>(packed[bit / 8] >> (8 - bits - bit % 8) & mask);
  }
}

}  // namespace

std::string png_version() { return std::string("libspng ") + spng_version_string(); }

Status read_png(std::span<const std::byte> file, const DecodeLimits& limits,
                const RowSink& target) {
  const Context context(spng_ctx_new(0));
  spng_ihdr header{};
  STOKER_RETURN_IF_ERROR(open_png(context.get(), file, limits, header));
  target.resizer.begin(header.height, header.width, target.box(header.height, header.width),
                       target.shape, target.planes, target.interpolation);
  STOKER_RETURN_IF_ERROR(header.interlace_method == 0
                             ? read_row_by_row(context.get(), header, target)
                             : read_interlaced(context.get(), header, target));
  // Verifies the checksum of the last image data chunk.
  if (target.resizer.rows().end < header.height) return {};
  if (const int error = spng_decode_chunks(context.get())) return png_error(error);
  return {};
}

Status read_png_classes(std::span<const std::byte> file, const DecodeLimits& limits,
                        const RowSink& target) {
  const Context context(spng_ctx_new(0));
  spng_ihdr header{};
  STOKER_RETURN_IF_ERROR(open_png(context.get(), file, limits, header));
  const bool is_index = header.color_type == SPNG_COLOR_TYPE_INDEXED ||
                        header.color_type == SPNG_COLOR_TYPE_GRAYSCALE;
  if (!is_index || header.bit_depth > 8)
    return Status(StatusCode::kCorrupt,
                  "PNG: a mask must have a palette, or gray levels of at most 8 bits; it has " +
                      std::to_string(samples_of(header.color_type)) + " channels of " +
                      std::to_string(header.bit_depth) + " bits");
  target.resizer.begin(header.height, header.width, target.box(header.height, header.width),
                       target.shape, target.planes, target.interpolation);
  const uint32_t bits = header.bit_depth;
  const size_t row_bytes = (size_t{header.width} * bits + 7) / 8;
  std::vector<uint8_t> image(row_bytes * header.height);
  if (const int error =
          spng_decode_image(context.get(), image.data(), image.size(), SPNG_FMT_PNG, 0))
    return png_error(error);
  target.resizer.expect_rows(header.width, 0);
  for (uint32_t y = target.resizer.rows().begin; y < target.resizer.rows().end; ++y) {
    unpack_row(image.data() + y * row_bytes, bits, header.width, target.resizer.next_row());
    target.resizer.push();
  }
  return {};
}

namespace {

struct FreeEncoder {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

struct FreeBytes {
  void operator()(void* bytes) const { std::free(bytes); }
};

Status encode_error(int error) {
  const StatusCode code = error == SPNG_EMEM ? StatusCode::kOutOfMemory : StatusCode::kInternal;
  return Status(code, std::string("write PNG: ") + spng_strerror(error));
}

}  // namespace

Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height) {
  if (rgb.empty() || rgb.size() != size_t{3} * width * height) {
    return Status(StatusCode::kInvalidArgument,
                  "write PNG: " + std::to_string(rgb.size()) + " bytes are not an image of  " +
                      std::to_string(width) + "x" + std::to_string(height));
  }
  const std::unique_ptr<spng_ctx, FreeEncoder> context(spng_ctx_new(SPNG_CTX_ENCODER));
  if (!context) return encode_error(SPNG_EMEM);
  spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = width;
  header.height = height;
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  if (const int error = spng_set_ihdr(context.get(), &header); error != 0)
    return encode_error(error);
  if (const int error = spng_encode_image(context.get(), rgb.data(), rgb.size(), SPNG_FMT_PNG,
                                          SPNG_ENCODE_FINALIZE);
      error != 0)
    return encode_error(error);
  size_t bytes = 0;
  int error = 0;
  const std::unique_ptr<void, FreeBytes> file(spng_get_png_buffer(context.get(), &bytes, &error));
  if (!file) return encode_error(error);
  return std::string(static_cast<const char*>(file.get()), bytes);
}

}  // namespace stoker::image
