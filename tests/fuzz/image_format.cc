#include <cstddef>
#include <span>

#include "shared/image/add_restart_markers.h"
#include "shared/image/decoder.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/shared/image/image_files.h"

namespace stoker::fuzz {
namespace {

using image::CropBox;
using image::DecodeLimits;
using image::testing::encode_jpeg;
using image::testing::encode_png_file;
using image::testing::encode_webp;
using image::testing::pattern;

constexpr DecodeLimits kLimits{
    .pixels = 1 << 18, .side = 4096, .scans = 20, .memory_bytes = 64 << 20};
constexpr image::ImageShape kShape{.channels = 3, .height = 24, .width = 17};
constexpr size_t kCropBytes = 4;

struct Decoded {
  bool ok = false;
  std::vector<std::byte> planes;  // empty on error
  bool operator==(const Decoded&) const = default;
};

Decoded decode_with(image::Decoder& decoder, std::span<const std::byte> file,
                    const image::CropFunction& crop) {
  Decoded decoded{.ok = false, .planes = std::vector<std::byte>(kShape.bytes())};
  decoded.ok = check_status(decoder.decode(file, kShape, decoded.planes, crop));
  if (!decoded.ok) decoded.planes.clear();
  return decoded;
}

// Decodes with a decoder that has already processed other images, including corrupt ones, and with
// a new one.
Decoded decode(std::span<const std::byte> file, const image::CropFunction& crop) {
  static image::Decoder reused_decoder(kLimits);
  image::Decoder new_decoder(kLimits);
  const Decoded decoded = decode_with(reused_decoder, file, crop);
  check_invariant(decode_with(new_decoder, file, crop) == decoded,
                  "repeated decodes of an image must be equal");
  return decoded;
}

// The first four bytes select the crop box, in 256ths of the available size; the rest is the file.
// In addition to the invariants of file_under_test.h, a JPEG that can be rewritten with restart
// markers must have the same header and decode to the same image, completely and cropped.
bool run(std::string_view input) {
  if (input.size() < kCropBytes) return false;
  const auto fraction = [&](size_t i) { return static_cast<unsigned char>(input[i]) / 256.0; };
  const auto file = std::as_bytes(std::span(input.substr(kCropBytes)));
  const image::CropFunction crop = [&](uint32_t height, uint32_t width) {
    const double top = fraction(0) * height, left = fraction(1) * width;
    return CropBox{.left = left,
                   .top = top,
                   .width = (width - left) * (1 - fraction(2)),
                   .height = (height - top) * (1 - fraction(3))};
  };
  if (reads_once()) {
    image::Decoder decoder(DecodeLimits{});
    return decode_with(decoder, file, {}).ok;
  }
  const Decoded complete = decode(file, {}), cropped = decode(file, crop);
  if (const auto rewritten = image::add_restart_markers(file, kLimits)) {
    check_invariant(complete.ok, "a JPEG that can be rewritten must decode");
    check_invariant(image::is_possible_result(*rewritten, file),
                    "a rewritten JPEG must have the header of the file");
    check_invariant(decode(*rewritten, {}) == complete,
                    "a rewritten JPEG must decode to the same image");
    check_invariant(decode(*rewritten, crop) == cropped,
                    "a rewritten JPEG must decode to the same crop");
  }
  return complete.ok;
}

}  // namespace

const Format& image_format() {
  static constexpr Format kFormat{
      .name = "image", .run = run, .seeds = [] {
        const std::string middle = "\x50\x70\x90\x80";
        const std::string file = encode_jpeg(pattern(100, 97), {.quality = 10});
        std::vector<std::string> seeds{
            middle + file,
            middle + encode_jpeg(pattern(20, 30), {.quality = 30, .restart_rows = 1}),
            middle + encode_jpeg(pattern(20, 30), {.quality = 30, .progressive = true}),
            middle + encode_jpeg(image::testing::gradient(96, 120, 1), {.quality = 10}),
            middle + encode_jpeg(image::testing::gradient(20, 30, 4), {.quality = 30}),
            middle + encode_png_file(pattern(9, 11), {.interlaced = true}),
            middle + encode_webp(pattern(20, 30), {.quality = 20}),
            middle + encode_webp(pattern(9, 11), {.lossless = true})};
        const auto rewritten = image::add_restart_markers(image::testing::bytes_of(file), kLimits);
        seeds.push_back(middle + std::string(reinterpret_cast<const char*>(rewritten->data()),
                                             rewritten->size()));
        return seeds;
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
