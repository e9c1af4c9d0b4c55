#include "shared/data/transform/image_decoder_input.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <vector>

#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/data/stage_timer.h"
#include "shared/image/decoder.h"

namespace stoker::data::transform {
namespace {

// A progressive JPEG needs memory for all of its pixels.
image::DecodeLimits limits_of(int64_t max_pixels) {
  image::DecodeLimits limits;
  const auto pixels = static_cast<uint64_t>(max_pixels);
  if (pixels > limits.pixels)
    limits.memory_bytes = limits.memory_bytes / limits.pixels * pixels + limits.memory_bytes;
  limits.pixels = pixels;
  return limits;
}

image::Decoder* decoder_of_thread(const image::DecodeLimits& limits) {
  // The datasets of a mixture can have other limits.
  thread_local std::optional<image::Decoder> decoder;
  if (!decoder || decoder->limits() != limits) decoder.emplace(limits);
  return &*decoder;
}

}  // namespace

ImageDecoderInput::ImageDecoderInput(const DatasetRequest& request, const image::ImageShape& shape,
                                     const CropResize& crop, const image::DecodeLimits& limits)
    : dataset_(request.name),
      shape_(shape),
      crop_(crop),
      limits_(limits),
      applies_exif_orientation_(request.config.applies_exif_orientation()),
      oriented_(std::make_shared<std::atomic<uint64_t>>(0)) {}

Result<ImageDecoderInput> ImageDecoderInput::of(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const CropResize crop, CropResize::of(request));
  const bool is_gray = request.config.image_mode() == config::ImageMode::kGray;
  return ImageDecoderInput(
      request, {.channels = is_gray ? 1u : 3u, .height = crop.height(), .width = crop.width()},
      crop, limits_of(request.config.max_image_pixels()));
}

TensorSpec ImageDecoderInput::spec() const {
  return {.name = tensor_name(TensorRole::kInput),
          .dtype = DType::kU8,
          .shape = {shape_.channels, shape_.height, shape_.width}};
}

std::string ImageDecoderInput::to_text() const {
  return crop_.to_text() + " channels=" + std::to_string(shape_.channels) +
         (applies_exif_orientation_ ? " upright" : "");
}

image::DecodeOptions ImageDecoderInput::options_for(std::span<const std::byte> file) const {
  image::DecodeOptions options{.interpolation = crop_.interpolation()};
  if (!applies_exif_orientation_) return options;
  options.orientation = image::exif_orientation(file);
  if (options.orientation.is_upright()) return options;
  // At 1, 10, 100, ... images.
  const uint64_t count = oriented_->fetch_add(1, std::memory_order_relaxed) + 1;
  uint64_t leading = count;
  while (leading % 10 == 0) leading /= 10;
  if (leading == 1) log_info("images turned upright", {{"dataset", dataset_}, {"count", count}});
  return options;
}

TensorSpec ImageDecoderInput::mask_spec() const {
  return {.name = tensor_name(TensorRole::kMask),
          .dtype = DType::kU8,
          .shape = {shape_.height, shape_.width}};
}

Status ImageDecoderInput::read(std::span<const std::byte> file, const RandomKey& random_key,
                               std::span<std::byte> input) const {
  const StageScope decoding(Stage::kDecode);
  image::Decoder* const decoder = decoder_of_thread(limits_);
  const image::DecodeOptions options = options_for(file);
  if (crop_.uses_full_image()) return decoder->decode(file, shape_, input, {}, options);
  const auto region = [&](uint32_t height, uint32_t width) {
    return crop_.box(height, width, random_key);
  };
  return decoder->decode(file, shape_, input, region, options);
}

Status ImageDecoderInput::read_with_mask(std::span<const std::byte> file,
                                         std::span<const std::byte> mask_file, uint64_t classes,
                                         const RandomKey& random_key, std::span<std::byte> input,
                                         std::span<std::byte> mask) const {
  const StageScope decoding(Stage::kDecode);
  image::Decoder* const decoder = decoder_of_thread(limits_);
  struct Size {
    uint32_t height = 0, width = 0;
    bool operator==(const Size&) const = default;
  };
  Size of_image, of_mask;
  const auto region_into = [&](Size& size) {
    return [this, &size, &random_key](uint32_t height, uint32_t width) {
      size = {.height = height, .width = width};
      return crop_.box(height, width, random_key);
    };
  };
  STOKER_RETURN_IF_ERROR(
      decoder->decode(file, shape_, input, region_into(of_image), options_for(file)));
  image::DecodeOptions options{.interpolation = image::Interpolation::kNearest, .is_mask = true};
  if (applies_exif_orientation_) options.orientation = image::exif_orientation(mask_file);
  const image::ImageShape shape{.channels = 1, .height = shape_.height, .width = shape_.width};
  STOKER_RETURN_IF_ERROR(
      decoder->decode(mask_file, shape, mask, region_into(of_mask), options).with_context("mask"));
  if (of_mask != of_image)
    return Status(StatusCode::kCorrupt,
                  "mask: has " + std::to_string(of_mask.width) + "x" +
                      std::to_string(of_mask.height) + " pixels, and its image " +
                      std::to_string(of_image.width) + "x" + std::to_string(of_image.height));
  const auto bad = std::ranges::find_if(mask, [classes](std::byte pixel) {
    return pixel != kIgnoredClass && std::to_integer<uint64_t>(pixel) >= classes;
  });
  if (bad == mask.end()) return {};
  return Status(StatusCode::kCorrupt,
                "mask: has class " + std::to_string(std::to_integer<int>(*bad)) +
                    ", not below num_classes (" + std::to_string(classes) + "); 255 is ignored");
}

std::string ImageDecoderInput::describe_transforms(std::span<const std::byte> file,
                                                   const RandomKey& random_key) const {
  if (!crop_.is_random()) return {};
  image::Decoder decoder(limits_);
  image::CropBox taken;
  std::vector<std::byte> input(shape_.bytes());
  const auto region = [&](uint32_t height, uint32_t width) {
    return taken = crop_.box(height, width, random_key);
  };
  image::DecodeOptions options;
  if (applies_exif_orientation_) options.orientation = image::exif_orientation(file);
  const Status decoded = decoder.decode(file, shape_, input, region, options);
  if (!decoded.ok()) return "crop=unknown";
  std::ostringstream text;
  text << "crop=" << taken.left << ',' << taken.top << ',' << taken.width << 'x' << taken.height;
  return text.str();
}

}  // namespace stoker::data::transform
