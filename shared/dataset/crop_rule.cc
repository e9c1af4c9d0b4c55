#include "shared/dataset/crop_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shared/dataset/draws.h"
#include "shared/dataset/split.h"

namespace stoker::dataset {
namespace {

constexpr int kTries = 10;

bool is_interval(const std::vector<double>& numbers, double most) {
  return numbers.size() == 2 && numbers[0] > 0 && numbers[0] <= numbers[1] && numbers[1] <= most;
}

image::Box box_of(double left, double top, double width, double height) {
  return {.left = left, .top = top, .width = width, .height = height};
}

}  // namespace

Result<CropRule> CropRule::of(const SetRequest& set) {
  const auto& config = set.config;
  CropRule rule;
  if (config.fit == "center_crop") {
    if (!(config.crop_part > 0 && config.crop_part <= 1))
      return set.wrong("crop_part", "must be above 0 and at most 1");
    rule.fit_ = Fit::kCenter;
    rule.part_ = config.crop_part;
  } else if (config.fit == "random_crop") {
    if (!is_interval(config.crop_area, 1))
      return set.wrong("crop_area", "must be [from, to] with 0 < from <= to <= 1");
    if (!is_interval(config.crop_ratio, 1000))
      return set.wrong("crop_ratio", "must be [from, to] with 0 < from <= to <= 1000");
    rule.fit_ = Fit::kRandom;
    rule.area_ = {.from = config.crop_area[0], .to = config.crop_area[1]};
    rule.ratio_ = {.from = config.crop_ratio[0], .to = config.crop_ratio[1]};
  } else if (config.fit != "stretch") {
    return set.wrong("fit", "must be stretch, center_crop or random_crop");
  }
  return rule;
}

std::string CropRule::to_text() const {
  switch (fit_) {
    case Fit::kStretch:
      return "";
    case Fit::kCenter:
      return " fit=center_crop crop_part=" + exact_text(part_);
    case Fit::kRandom:
      return " fit=random_crop crop_area=" + exact_text(area_.from) + ".." + exact_text(area_.to) +
             " crop_ratio=" + exact_text(ratio_.from) + ".." + exact_text(ratio_.to);
  }
  return "";
}

image::Box CropRule::box(uint32_t height, uint32_t width, const image::PictureShape& shape,
                         const DrawKey& draw) const {
  switch (fit_) {
    case Fit::kStretch:
      break;
    case Fit::kCenter:
      return center_box(height, width, shape);
    case Fit::kRandom:
      return random_box(height, width, draw);
  }
  return box_of(0, 0, width, height);
}

image::Box CropRule::center_box(uint32_t height, uint32_t width,
                                const image::PictureShape& shape) const {
  const double scale = part_ * std::min(double(height) / shape.height, double(width) / shape.width);
  const double box_width = std::min<double>(width, scale * shape.width);
  const double box_height = std::min<double>(height, scale * shape.height);
  return box_of((width - box_width) / 2, (height - box_height) / 2, box_width, box_height);
}

image::Box CropRule::random_box(uint32_t height, uint32_t width, const DrawKey& draw) const {
  Draws draws(draw, Purpose::kCrop);
  const double pixels = double(height) * width;
  for (int i = 0; i < kTries; ++i) {
    const double area = pixels * draws.uniform(area_.from, area_.to);
    const double ratio = std::exp(draws.uniform(std::log(ratio_.from), std::log(ratio_.to)));
    const double box_width = std::nearbyint(std::sqrt(area * ratio));
    const double box_height = std::nearbyint(std::sqrt(area / ratio));
    if (box_width < 1 || box_height < 1 || box_width > width || box_height > height) continue;
    const uint32_t top = draws.below(height - static_cast<uint32_t>(box_height) + 1);
    const uint32_t left = draws.below(width - static_cast<uint32_t>(box_width) + 1);
    return box_of(left, top, box_width, box_height);
  }
  return widest_box(height, width);
}

image::Box CropRule::widest_box(uint32_t height, uint32_t width) const {
  const double ratio = double(width) / height;
  double box_width = width, box_height = height;
  if (ratio < ratio_.from) box_height = std::max(1.0, std::nearbyint(width / ratio_.from));
  if (ratio > ratio_.to) box_width = std::max(1.0, std::nearbyint(height * ratio_.to));
  return box_of(std::floor((width - box_width) / 2), std::floor((height - box_height) / 2),
                box_width, box_height);
}

}  // namespace stoker::dataset
