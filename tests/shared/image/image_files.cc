#include "tests/shared/image/image_files.h"

#include <jpeglib.h>
#include <zlib.h>

#include <array>
#include <cstdio>  // jpeglib.h needs FILE
#include <cstdlib>

#include <webp/encode.h>

#include "tests/support/packed_bytes.h"

namespace stoker::image::testing {
namespace {

using test::big_endian;

struct Pass {
  uint32_t x0, y0, dx, dy;
};
constexpr std::array<Pass, 7> kAdam7{{{0, 0, 8, 8},
                                      {4, 0, 8, 8},
                                      {0, 4, 4, 8},
                                      {2, 0, 4, 4},
                                      {0, 2, 2, 4},
                                      {1, 0, 2, 2},
                                      {0, 1, 1, 2}}};

void append_pass(const Pixels& pixels, const PngOptions& options, const Pass& pass,
                 std::string& raw) {
  if (pass.x0 >= pixels.width) return;
  for (uint32_t y = pass.y0; y < pixels.height; y += pass.dy) {
    raw.push_back('\0');  // no filter
    uint32_t packed = 0, bits = 0;
    for (uint32_t x = pass.x0; x < pixels.width; x += pass.dx) {
      for (uint32_t c = 0; c < pixels.channels; ++c) {
        const uint8_t sample = pixels.at(y, x, c);
        if (options.bit_depth == 16) raw.push_back(static_cast<char>(sample));
        const auto depth = static_cast<uint32_t>(options.bit_depth == 16 ? 8 : options.bit_depth);
        packed = packed << depth | sample;
        bits += depth;
        if (bits == 8) raw.push_back(static_cast<char>(packed)), packed = bits = 0;
      }
    }
    if (bits > 0) raw.push_back(static_cast<char>(packed << (8 - bits)));
  }
}

}  // namespace

Pixels pattern(uint32_t height, uint32_t width) {
  Pixels pixels{.height = height, .width = width, .channels = 3, .samples = {}};
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x)
      for (uint32_t c = 0; c < 3; ++c)
        pixels.samples.push_back(static_cast<uint8_t>(x * 7 + y * 13 + c * 50 + (x * y) % 31 * 5));
  return pixels;
}

Pixels gradient(uint32_t height, uint32_t width, uint32_t channels) {
  Pixels pixels{.height = height, .width = width, .channels = channels, .samples = {}};
  for (uint32_t y = 0; y < height; ++y)
    for (uint32_t x = 0; x < width; ++x)
      for (uint32_t c = 0; c < channels; ++c)
        pixels.samples.push_back(
            static_cast<uint8_t>(50 + 100 * x / width + 60 * y / height + 10 * c));
  return pixels;
}

Pixels plain(uint32_t height, uint32_t width, std::vector<uint8_t> color) {
  Pixels pixels{.height = height,
                .width = width,
                .channels = static_cast<uint32_t>(color.size()),
                .samples = {}};
  for (uint32_t i = 0; i < height * width; ++i)
    pixels.samples.insert(pixels.samples.end(), color.begin(), color.end());
  return pixels;
}

std::string encode_jpeg(const Pixels& pixels, const JpegOptions& options) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = pixels.width;
  info.image_height = pixels.height;
  info.input_components = static_cast<int>(pixels.channels);
  info.in_color_space = pixels.channels == 1   ? JCS_GRAYSCALE
                        : pixels.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  info.restart_in_rows = options.restart_rows;
  if (pixels.channels == 3) {
    info.comp_info[0].h_samp_factor = options.across;
    info.comp_info[0].v_samp_factor = options.down;
  }
  std::vector<jpeg_scan_info> scans;
  if (options.progressive) {
    jpeg_simple_progression(&info);
    scans.assign(info.scan_info, info.scan_info + info.num_scans);
    // A first scan over a few coefficients of component 0 can be followed by refinements. The
    // cheapest valid way to add scans is one scan per AC coefficient.
    if (options.extra_scans > 0) {
      scans.assign(
          1, jpeg_scan_info{
                 .comps_in_scan = 1, .component_index = {0}, .Ss = 0, .Se = 0, .Ah = 0, .Al = 0});
      for (int k = 1; k <= options.extra_scans; ++k)
        scans.push_back(
            {.comps_in_scan = 1, .component_index = {0}, .Ss = k, .Se = k, .Ah = 0, .Al = 0});
    }
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  for (uint32_t y = 0; y < pixels.height; ++y) {
    auto* row =
        const_cast<uint8_t*>(pixels.samples.data() + size_t{y} * pixels.width * pixels.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&info);
  std::free(buffer);
  return file;
}

std::string encode_webp(const Pixels& pixels, const WebpOptions& options) {
  const auto width = static_cast<int>(pixels.width), height = static_cast<int>(pixels.height);
  const auto stride = width * static_cast<int>(pixels.channels);
  const uint8_t* samples = pixels.samples.data();
  const bool alpha = pixels.channels == 4;
  uint8_t* bytes = nullptr;
  size_t size = 0;
  if (options.lossless) {
    size = (alpha ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(samples, width, height, stride,
                                                                    &bytes);
  } else {
    size = (alpha ? WebPEncodeRGBA : WebPEncodeRGB)(samples, width, height, stride, options.quality,
                                                    &bytes);
  }
  std::string file(reinterpret_cast<char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

std::string png_chunk(const std::string& type, const std::string& content) {
  const std::string checked = type + content;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<uint32_t>(content.size())) + checked +
         big_endian(static_cast<uint32_t>(crc));
}

std::string png_header(uint32_t height, uint32_t width, const PngOptions& options) {
  std::string header = big_endian(width) + big_endian(height);
  header += {static_cast<char>(options.bit_depth), static_cast<char>(options.color_type), '\0',
             '\0', static_cast<char>(options.interlaced)};
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header);
}

std::string encode_png_file(const Pixels& pixels, const PngOptions& options) {
  std::string raw;
  if (options.interlaced) {
    for (const Pass& pass : kAdam7) append_pass(pixels, options, pass, raw);
  } else {
    append_pass(pixels, options, {0, 0, 1, 1}, raw);
  }
  uLongf size = compressBound(raw.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(raw.data()), raw.size());
  packed.resize(size);
  std::string file = png_header(pixels.height, pixels.width, options);
  if (!options.palette.empty())
    file += png_chunk("PLTE", std::string(options.palette.begin(), options.palette.end()));
  return file + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

}  // namespace stoker::image::testing
