// image_files: encodes test images in memory. PNGs are written by a small encoder, so that they can
// be corrupted precisely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stoker::image::testing {

// Interleaved 8-bit samples, row by row.
struct Pixels {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 3;
  std::vector<uint8_t> samples;
  uint8_t at(uint32_t y, uint32_t x, uint32_t c) const {
    return samples[(size_t{y} * width + x) * channels + c];
  }
};

Pixels pattern(uint32_t height, uint32_t width);  // high-contrast; input of the golden values
// Smooth: nearly unchanged by JPEG.
Pixels gradient(uint32_t height, uint32_t width, uint32_t channels);
Pixels plain(uint32_t height, uint32_t width, std::vector<uint8_t> color);

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  int across = 2, down = 2;  // chroma subsampling factors (RGB)
  int restart_rows = 0;      // rows of blocks per restart interval; 0: no restart markers
  int extra_scans = 0;       // progressive: number of additional, redundant scans
};
// Channels: 1 gray, 3 RGB, 4 CMYK (Adobe: inverted).
std::string encode_jpeg(const Pixels& pixels, const JpegOptions& options = {});

struct WebpOptions {
  bool lossless = false;
  float quality = 95;
};
// Channels: 3 RGB, 4 RGB + alpha.
std::string encode_webp(const Pixels& pixels, const WebpOptions& options = {});

struct PngOptions {
  int color_type = 2;  // as in the format: 0 gray, 2 RGB, 3 palette, 4 gray + alpha, 6 RGB + alpha
  int bit_depth = 8;   // 16: each sample is written twice; below 8: samples have that many bits
  bool interlaced = false;
  std::vector<uint8_t> palette;  // RGB triples
};
std::string encode_png_file(const Pixels& pixels, const PngOptions& options = {});
// PNGs built from given chunks, valid or not.
std::string png_chunk(const std::string& type, const std::string& content);
// Magic and IHDR.
std::string png_header(uint32_t height, uint32_t width, const PngOptions& options);

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace stoker::image::testing
