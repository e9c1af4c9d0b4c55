#include "shared/data/transform/image_geometry.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "shared/base/number_format.h"
#include "shared/data/counter_rng.h"
#include "shared/data/transform/augment_policies.h"

namespace stoker::data::transform {
namespace {

constexpr int kTries = 10;
constexpr int64_t kMaxSide = 16384;

bool is_interval(const std::vector<double>& numbers, double max_count) {
  return numbers.size() == 2 && numbers[0] > 0 && numbers[0] <= numbers[1] &&
         numbers[1] <= max_count;
}

image::CropBox box_of(double left, double top, double width, double height) {
  return {.left = left, .top = top, .width = width, .height = height};
}

}  // namespace

Result<CropResize> CropResize::of(const DatasetRequest& request) {
  static const config::Transforms kNone;
  const config::Transforms& transforms =
      request.config.transforms() == nullptr ? kNone : *request.config.transforms();
  const auto* const resize = config::find_transform<config::Resize>(transforms);
  const auto* const center = config::find_transform<config::CenterCrop>(transforms);
  const auto* const random = config::find_transform<config::RandomResizedCrop>(transforms);
  CropResize rule;
  if (random != nullptr) {
    if (resize != nullptr || center != nullptr)
      return request.config_error(
          "transforms", "random_resized_crop cannot be combined with resize and center_crop");
    STOKER_RETURN_IF_ERROR(rule.take_random(request, *random));
    rule.interpolation_ = interpolation_of(random->interpolation);
    return rule;
  }
  if (resize == nullptr) {
    return request.config_error("transforms", center != nullptr
                                                  ? "center_crop requires a resize before it"
                                                  : "encoded images need one of resize, resize and "
                                                    "center_crop, or random_resized_crop");
  }
  rule.interpolation_ = interpolation_of(resize->interpolation);
  if (center != nullptr) {
    STOKER_RETURN_IF_ERROR(rule.take_center(request, *resize, *center));
    return rule;
  }
  if (resize->size.size() == 1) {
    return request.config_error(
        "transforms", "resize.size must be [height, width] unless a center_crop follows it");
  }
  STOKER_ASSIGN_OR_RETURN(rule.size_, size_of(request, "resize", resize->size));
  return rule;
}

Result<CropResize::Size> CropResize::size_of(const DatasetRequest& request, std::string_view name,
                                             const std::vector<int64_t>& given) {
  const auto fits = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  const bool is_size = given.size() == 1 || given.size() == 2;
  if (!is_size || !std::ranges::all_of(given, fits)) {
    return request.config_error(
        "transforms", std::string(name) + ".size must be [height, width], each between 1 and " +
                          std::to_string(kMaxSide));
  }
  return Size{.height = static_cast<uint32_t>(given.front()),
              .width = static_cast<uint32_t>(given.back())};
}

Status CropResize::take_center(const DatasetRequest& request, const config::Resize& resize,
                               const config::CenterCrop& crop) {
  fit_ = Fit::kCenter;
  STOKER_ASSIGN_OR_RETURN(resized_, size_of(request, "resize", resize.size));
  STOKER_ASSIGN_OR_RETURN(size_, size_of(request, "center_crop", crop.size));
  resizes_shorter_side_ = resize.size.size() == 1;
  if (size_.height <= resized_.height && size_.width <= resized_.width) return {};
  return request.config_error("transforms", "center_crop.size must not be larger than resize.size");
}

Status CropResize::take_random(const DatasetRequest& request,
                               const config::RandomResizedCrop& crop) {
  if (!is_interval(crop.scale, 1))
    return request.config_error(
        "transforms", "random_resized_crop.scale must be [from, to] with 0 < from <= to <= 1");
  if (!is_interval(crop.ratio, 1000))
    return request.config_error(
        "transforms", "random_resized_crop.ratio must be [from, to] with 0 < from <= to <= 1000");
  fit_ = Fit::kRandom;
  STOKER_ASSIGN_OR_RETURN(size_, size_of(request, "random_resized_crop", crop.size));
  area_ = {.from = crop.scale[0], .to = crop.scale[1]};
  ratio_ = {.from = crop.ratio[0], .to = crop.ratio[1]};
  return {};
}

std::string CropResize::to_text() const {
  if (interpolation_ == image::Interpolation::kBilinear) return size_to_text();
  return size_to_text() +
         (interpolation_ == image::Interpolation::kNearest ? " nearest" : " bicubic");
}

std::string CropResize::size_to_text() const {
  const auto format_spec = [](const Size& size) {
    return std::to_string(size.height) + 'x' + std::to_string(size.width);
  };
  const std::string size = "size=" + format_spec(size_);
  switch (fit_) {
    case Fit::kStretch:
      return size;
    case Fit::kCenter:
      return size + " center_crop from whole pixels of " +
             (resizes_shorter_side_ ? std::to_string(resized_.height) : format_spec(resized_));
    case Fit::kRandom:
      return size + " scale=" + format_exact(area_.from) + ".." + format_exact(area_.to) +
             " ratio=" + format_exact(ratio_.from) + ".." + format_exact(ratio_.to);
  }
  return size;
}

image::CropBox CropResize::box(uint32_t height, uint32_t width, const RandomKey& random_key) const {
  switch (fit_) {
    case Fit::kStretch:
      break;
    case Fit::kCenter:
      return center_box(height, width);
    case Fit::kRandom:
      return random_box(height, width, random_key);
  }
  return box_of(0, 0, width, height);
}

image::CropBox CropResize::center_box(uint32_t height, uint32_t width) const {
  // As torchvision, which resizes to whole pixels and then crops from a whole pixel.
  double resized_height = resized_.height, resized_width = resized_.width;
  if (resizes_shorter_side_) {
    const double shorter = std::min(height, width);
    resized_height = std::floor(double(resized_.height) * height / shorter);
    resized_width = std::floor(double(resized_.width) * width / shorter);
  }
  const auto part_of = [](double side, double resized, double cropped) {
    const double first = std::nearbyint((resized - cropped) / 2);  // to even, as Python's round()
    const double scale = side / resized;
    return std::pair(first * scale, std::min(cropped * scale, side - first * scale));
  };
  const auto [left, box_width] = part_of(width, resized_width, size_.width);
  const auto [top, box_height] = part_of(height, resized_height, size_.height);
  return box_of(left, top, box_width, box_height);
}

image::CropBox CropResize::random_box(uint32_t height, uint32_t width,
                                      const RandomKey& random_key) const {
  CounterRng rng(random_key, RandomStream::kCrop);
  const double pixels = double(height) * width;
  for (int i = 0; i < kTries; ++i) {
    const double area = pixels * rng.uniform(area_.from, area_.to);
    const double ratio = std::exp(rng.uniform(std::log(ratio_.from), std::log(ratio_.to)));
    const double box_width = std::nearbyint(std::sqrt(area * ratio));
    const double box_height = std::nearbyint(std::sqrt(area / ratio));
    if (box_width < 1 || box_height < 1 || box_width > width || box_height > height) continue;
    const uint32_t top = rng.below(height - static_cast<uint32_t>(box_height) + 1);
    const uint32_t left = rng.below(width - static_cast<uint32_t>(box_width) + 1);
    return box_of(left, top, box_width, box_height);
  }
  return max_box(height, width);
}

image::CropBox CropResize::max_box(uint32_t height, uint32_t width) const {
  const double ratio = double(width) / height;
  double box_width = width, box_height = height;
  if (ratio < ratio_.from) box_height = std::max(1.0, std::nearbyint(width / ratio_.from));
  if (ratio > ratio_.to) box_width = std::max(1.0, std::nearbyint(height * ratio_.to));
  return box_of(std::floor((width - box_width) / 2), std::floor((height - box_height) / 2),
                box_width, box_height);
}

bool has_encoded_images(const config::DatasetConfig& config) {
  if (std::holds_alternative<config::ImageFolderDataset>(config.source) ||
      std::holds_alternative<config::ImageListDataset>(config.source))
    return true;
  return config.record() != nullptr && !config.record()->fields.image.empty();
}

bool has_random_resized_crop(const config::DatasetConfig& config) {
  const config::Transforms* const transforms = config.transforms();
  return transforms != nullptr &&
         config::find_transform<config::RandomResizedCrop>(*transforms) != nullptr;
}

}  // namespace stoker::data::transform
