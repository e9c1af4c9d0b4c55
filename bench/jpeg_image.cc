#include "bench/jpeg_image.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

// jpeglib.h uses FILE without including <cstdio>.
#include <jpeglib.h>

namespace stoker::bench {
namespace {

constexpr int kQuality = 90;

struct Trap {
  jpeg_error_mgr manager;  // must be the first member
  std::jmp_buf jump_buffer;
};

[[noreturn]] void jump_back(j_common_ptr image) {
  std::longjmp(reinterpret_cast<Trap*>(image->err)->jump_buffer, 1);
}

std::vector<unsigned char> count_pixels(uint32_t width, uint32_t height, uint64_t seed) {
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
  const auto pixels = count_pixels(width, height, seed);
  jpeg_compress_struct image{};
  Trap trap{};
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  image.err = jpeg_std_error(&trap.manager);
  trap.manager.error_exit = jump_back;
  if (setjmp(trap.jump_buffer) != 0) {
    jpeg_destroy_compress(&image);
    std::free(buffer);
    return Status(StatusCode::kInternal, "libjpeg could not make an image");
  }
  jpeg_create_compress(&image);
  jpeg_mem_dest(&image, &buffer, &bytes);
  image.image_width = width;
  image.image_height = height;
  image.input_components = 3;
  image.in_color_space = JCS_RGB;
  jpeg_set_defaults(&image);
  jpeg_set_quality(&image, kQuality, TRUE);
  jpeg_start_compress(&image, TRUE);
  while (image.next_scanline < height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + size_t{3} * width * image.next_scanline);
    jpeg_write_scanlines(&image, &row, 1);
  }
  jpeg_finish_compress(&image);
  std::string jpeg(reinterpret_cast<const char*>(buffer), bytes);
  jpeg_destroy_compress(&image);
  std::free(buffer);
  return jpeg;
}

Status decode_jpeg(std::span<const std::byte> jpeg, std::vector<std::byte>& pixels) {
  jpeg_decompress_struct image{};
  Trap trap{};
  image.err = jpeg_std_error(&trap.manager);
  trap.manager.error_exit = jump_back;
  if (setjmp(trap.jump_buffer) != 0) {
    jpeg_destroy_decompress(&image);
    return Status(StatusCode::kCorrupt, "libjpeg could not decode an image");
  }
  jpeg_create_decompress(&image);
  jpeg_mem_src(&image, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&image, TRUE);
  image.out_color_space = JCS_RGB;
  jpeg_start_decompress(&image);
  const size_t row_bytes = size_t{3} * image.output_width;
  pixels.resize(row_bytes * image.output_height);
  while (image.output_scanline < image.output_height) {
    auto* row = reinterpret_cast<JSAMPROW>(pixels.data() + row_bytes * image.output_scanline);
    jpeg_read_scanlines(&image, &row, 1);
  }
  jpeg_finish_decompress(&image);
  jpeg_destroy_decompress(&image);
  return {};
}

}  // namespace stoker::bench
