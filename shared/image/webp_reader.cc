#include "shared/image/webp_reader.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include <webp/decode.h>

namespace stoker::image {
namespace {

// Memory of the library for a lossless image, and the RGB output for its region.
constexpr uint64_t kBytesPerPixel = 4 + 3;
constexpr size_t kMaxScratchBytes = size_t{16}
                                    << 20;  // bytes of scratch memory kept for the next image
// Chroma upsampling reads neighbors, which must be decoded so that the region is identical to that
// of the complete image.
constexpr uint32_t kWebpMargin = 2;

Status webp_error(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return Status(StatusCode::kOutOfMemory, "WebP: not enough memory to decode");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return Status(StatusCode::kCorrupt, "WebP: truncated");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return Status(StatusCode::kCorrupt, "WebP: unsupported version");
    default:
      return Status(StatusCode::kCorrupt, "WebP: corrupt");
  }
}

// Checked before memory is allocated.
Status check_features(const WebPBitstreamFeatures& image, const DecodeLimits& limits) {
  const auto height = static_cast<uint64_t>(image.height);
  const auto width = static_cast<uint64_t>(image.width);
  STOKER_RETURN_IF_ERROR(check_size(height, width, limits).with_context("WebP"));
  if (image.has_animation != 0)
    return Status(StatusCode::kCorrupt, "WebP: animations are not supported");
  if (height * width * kBytesPerPixel > limits.memory_bytes) {
    return Status(StatusCode::kCorrupt, "WebP: needs more than " +
                                            std::to_string(limits.memory_bytes) +
                                            " bytes of memory to decode");
  }
  return {};
}

// The pixels of `needed` and their neighbors, starting at an even position because of chroma
// subsampling.
Resizer::Range with_webp_margin(const Resizer::Range& needed, uint32_t size) {
  return {.begin = (needed.begin - std::min(needed.begin, kWebpMargin)) & ~1u,
          .end = std::min(needed.end + kWebpMargin, size)};
}

}  // namespace

std::string webp_version() { return "libwebp " + std::to_string(WebPGetDecoderVersion()); }

Status read_webp(std::span<const std::byte> file, const DecodeLimits& limits,
                 const RowSink& target) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0)
    return Status(StatusCode::kInternal, "WebP: libwebp and its header have different versions");
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
  if (const auto code = WebPGetFeatures(bytes, file.size(), &config.input); code != VP8_STATUS_OK)
    return webp_error(code);
  STOKER_RETURN_IF_ERROR(check_features(config.input, limits));
  const auto height = static_cast<uint32_t>(config.input.height);
  const auto width = static_cast<uint32_t>(config.input.width);
  target.resizer.begin(height, width, target.box(height, width), target.shape, target.planes,
                       target.interpolation);

  const Resizer::Range rows = with_webp_margin(target.resizer.rows(), height);
  const Resizer::Range columns = with_webp_margin(target.resizer.columns(), width);
  const size_t row_bytes = size_t{columns.end - columns.begin} * 3;
  target.pixels.resize(std::max(target.pixels.size(), row_bytes * (rows.end - rows.begin)));
  config.options.use_cropping = 1;
  config.options.crop_left = static_cast<int>(columns.begin);
  config.options.crop_top = static_cast<int>(rows.begin);
  config.options.crop_width = static_cast<int>(columns.end - columns.begin);
  config.options.crop_height = static_cast<int>(rows.end - rows.begin);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = target.pixels.data(),
                          .stride = static_cast<int>(row_bytes),
                          .size = target.pixels.size()};
  const auto code = WebPDecode(bytes, file.size(), &config);
  if (code == VP8_STATUS_OK)
    push_rows({.pixels = target.pixels.data(),
               .row_bytes = row_bytes,
               .top = rows.begin,
               .left = columns.begin,
               .width = columns.end - columns.begin},
              target);
  if (target.pixels.size() > kMaxScratchBytes) std::vector<uint8_t>().swap(target.pixels);
  return code == VP8_STATUS_OK ? Status() : webp_error(code);
}

}  // namespace stoker::image
