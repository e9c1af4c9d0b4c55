// Pictures as files in memory, made by a small encoder of the test's own where damage has to be
// exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stoker::image::testing {

// Interleaved samples of 8 bits, row after row.
struct Pixels {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 3;
  std::vector<uint8_t> samples;
  uint8_t at(uint32_t y, uint32_t x, uint32_t c) const {
    return samples[(size_t{y} * width + x) * channels + c];
  }
};

Pixels pattern(uint32_t height, uint32_t width);  // busy; the golden values were made of this one
Pixels gradient(uint32_t height, uint32_t width,
                uint32_t channels);  // smooth: JPEG hardly changes it
Pixels plain(uint32_t height, uint32_t width, std::vector<uint8_t> color);

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  int across = 2, down = 2;  // pixels that share a sample of colour (of RGB)
  int restart_rows = 0;      // a restart marker after so many rows of blocks; 0: none
  int extra_scans = 0;       // progressive: so many more scans that refine nothing new
};
std::string encode_jpeg(
    const Pixels& pixels,
    const JpegOptions& options = {});  // 1 grey, 3 RGB, 4 CMYK (Adobe: inverted)

struct WebpOptions {
  bool lossless = false;
  float quality = 95;
};
std::string encode_webp(const Pixels& pixels,
                        const WebpOptions& options = {});  // 3 RGB, 4 RGB + alpha

struct PngOptions {
  int color_type = 2;  // as in the format: 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGB + alpha
  int bit_depth =
      8;  // 16: each sample is written twice; below 8: samples hold values of that many bits
  bool interlaced = false;
  std::vector<uint8_t> palette;  // RGB triples
};
std::string encode_png_file(const Pixels& pixels, const PngOptions& options = {});
// A PNG of given parts, right or wrong.
std::string png_chunk(const std::string& type, const std::string& content);
std::string png_header(uint32_t height, uint32_t width,
                       const PngOptions& options);  // magic and IHDR

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace stoker::image::testing
