#include "bench/jpeg_picture.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

// After <cstdio>: it uses FILE and does not say so.
#include <jpeglib.h>

namespace stoker::bench {
namespace {

constexpr int kQuality = 90;

struct Trap {
  jpeg_error_mgr manager;  // first: libjpeg knows only this
  std::jmp_buf place;
};

[[noreturn]] void jump_back(j_common_ptr picture) {
  std::longjmp(reinterpret_cast<Trap*>(picture->err)->place, 1);
}

std::vector<unsigned char> pixels_of(uint32_t width, uint32_t height, uint64_t seed) {
  std::vector<unsigned char> pixels;
  pixels.reserve(size_t{3} * width * height);
  uint64_t noise = seed * 2 + 1;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      noise = noise * 6364136223846793005u + 1442695040888963407u;
      const auto grain = static_cast<uint32_t>(noise >> 60);
      const uint32_t edge = (x / 37 + y / 23 + seed) % 5 * 30;
      for (const uint32_t smooth : {x * 255 / width, y * 255 / height, (x + y) % 256})
        pixels.push_back(static_cast<unsigned char>((smooth / 2 + edge + grain) % 256));
    }
  }
  return pixels;
}

}  // namespace

Result<std::string> make_jpeg(uint32_t width, uint32_t height, uint64_t seed) {
  const auto pixels = pixels_of(width, height, seed);
  jpeg_compress_struct picture{};
  Trap trap{};
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  picture.err = jpeg_std_error(&trap.manager);
  trap.manager.error_exit = jump_back;
  if (setjmp(trap.place) != 0) {
    jpeg_destroy_compress(&picture);
    std::free(buffer);
    return Status(Code::kInternal, "libjpeg could not make a picture");
  }
  jpeg_create_compress(&picture);
  jpeg_mem_dest(&picture, &buffer, &bytes);
  picture.image_width = width;
  picture.image_height = height;
  picture.input_components = 3;
  picture.in_color_space = JCS_RGB;
  jpeg_set_defaults(&picture);
  jpeg_set_quality(&picture, kQuality, TRUE);
  jpeg_start_compress(&picture, TRUE);
  while (picture.next_scanline < height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + size_t{3} * width * picture.next_scanline);
    jpeg_write_scanlines(&picture, &row, 1);
  }
  jpeg_finish_compress(&picture);
  std::string jpeg(reinterpret_cast<const char*>(buffer), bytes);
  jpeg_destroy_compress(&picture);
  std::free(buffer);
  return jpeg;
}

Status decode_jpeg(std::span<const std::byte> jpeg, std::vector<std::byte>& pixels) {
  jpeg_decompress_struct picture{};
  Trap trap{};
  picture.err = jpeg_std_error(&trap.manager);
  trap.manager.error_exit = jump_back;
  if (setjmp(trap.place) != 0) {
    jpeg_destroy_decompress(&picture);
    return Status(Code::kCorrupt, "libjpeg could not decode a picture");
  }
  jpeg_create_decompress(&picture);
  jpeg_mem_src(&picture, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&picture, TRUE);
  picture.out_color_space = JCS_RGB;
  jpeg_start_decompress(&picture);
  const size_t row_bytes = size_t{3} * picture.output_width;
  pixels.resize(row_bytes * picture.output_height);
  while (picture.output_scanline < picture.output_height) {
    auto* row = reinterpret_cast<JSAMPROW>(pixels.data() + row_bytes * picture.output_scanline);
    jpeg_read_scanlines(&picture, &row, 1);
  }
  jpeg_finish_decompress(&picture);
  jpeg_destroy_decompress(&picture);
  return {};
}

}  // namespace stoker::bench
