#include "shared/data/transform/image_decoder_input.h"

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

Status ImageDecoderInput::read(std::span<const std::byte> file, const RandomKey& random_key,
                               std::span<std::byte> input) const {
  const StageScope decoding(Stage::kDecode);
  // The datasets of a mixture can have other limits.
  thread_local std::optional<image::Decoder> decoder;
  if (!decoder || decoder->limits() != limits_) decoder.emplace(limits_);
  const image::DecodeOptions options = options_for(file);
  if (crop_.uses_full_image()) return decoder->decode(file, shape_, input, {}, options);
  const auto region = [&](uint32_t height, uint32_t width) {
    return crop_.box(height, width, random_key);
  };
  return decoder->decode(file, shape_, input, region, options);
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
  const Status decoded = decoder.decode(file, shape_, input, region, options_for(file));
  if (!decoded.ok()) return "crop=unknown";
  std::ostringstream text;
  text << "crop=" << taken.left << ',' << taken.top << ',' << taken.width << 'x' << taken.height;
  return text.str();
}

}  // namespace stoker::data::transform
