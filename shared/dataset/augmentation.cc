#include "shared/dataset/augmentation.h"

#include <algorithm>
#include <utility>

#include "shared/dataset/draws.h"
#include "shared/dataset/split.h"
#include "shared/image/color_jitter.h"
#include "shared/image/mirror.h"
#include "shared/image/shift.h"

namespace stoker::dataset {
namespace {

constexpr int64_t kMostPad = 16383;
constexpr double kMostHue = 0.5;

}  // namespace

Result<Augmentation> Augmentation::of(const SetRequest& set) {
  const auto& config = set.config;
  Augmentation augmentation;
  if (config.pad < 0 || config.pad > kMostPad)
    return set.wrong("pad", "must be between 0 and " + std::to_string(kMostPad));
  if (!(config.flip >= 0 && config.flip <= 1))
    return set.wrong("flip", "must be a probability from 0 to 1");
  const auto& strength = config.jitter;
  const bool fits = strength.size() == kSteps && strength[kHue] <= kMostHue &&
                    std::all_of(strength.begin(), strength.end(),
                                [](double value) { return value >= 0 && value <= 100; });
  if (!fits) {
    return set.wrong("jitter",
                     "must be [brightness, contrast, saturation, hue], from 0; hue at most 0.5");
  }
  augmentation.pad_ = static_cast<uint32_t>(config.pad);
  augmentation.flip_ = config.flip;
  std::copy(strength.begin(), strength.end(), augmentation.strength_.begin());
  return augmentation;
}

bool Augmentation::jitters() const {
  return std::any_of(strength_.begin(), strength_.end(), [](double value) { return value > 0; });
}

std::string Augmentation::to_text() const {
  std::string text;
  if (pad_ > 0) text += " pad=" + std::to_string(pad_);
  if (flip_ > 0) text += " flip=" + exact_text(flip_);
  if (!jitters()) return text;
  text += " jitter=";
  for (size_t step = 0; step < kSteps; ++step)
    text += (step == 0 ? "" : ",") + exact_text(strength_[step]);
  return text;
}

void Augmentation::apply(const image::PictureShape& shape, const DrawKey& draw,
                         std::span<std::byte> planes) const {
  if (pad_ > 0) shift(shape, draw, planes);
  if (flip_ > 0 && Draws(draw, Purpose::kFlip).uniform() < flip_) image::mirror(shape, planes);
  if (jitters()) jitter(shape, draw, planes);
}

void Augmentation::shift(const image::PictureShape& shape, const DrawKey& draw,
                         std::span<std::byte> planes) const {
  Draws draws(draw, Purpose::kPad);
  const auto pad = static_cast<int32_t>(pad_);
  const int32_t down = static_cast<int32_t>(draws.below(2 * pad_ + 1)) - pad;
  const int32_t across = static_cast<int32_t>(draws.below(2 * pad_ + 1)) - pad;
  image::shift(shape, down, across, planes);
}

void Augmentation::jitter(const image::PictureShape& shape, const DrawKey& draw,
                          std::span<std::byte> planes) const {
  Draws draws(draw, Purpose::kJitter);
  std::array<Step, kSteps> order{kBrightness, kContrast, kSaturation, kHue};
  for (uint32_t left = kSteps; left > 1; --left)
    std::swap(order[left - 1], order[draws.below(left)]);
  std::array<double, kSteps> amount;
  for (const Step step : {kBrightness, kContrast, kSaturation})
    amount[step] = draws.uniform(std::max(0.0, 1 - strength_[step]), 1 + strength_[step]);
  amount[kHue] = draws.uniform(-strength_[kHue], strength_[kHue]);
  for (const Step step : order) {
    if (strength_[step] == 0) continue;
    if (step == kBrightness) image::change_brightness(shape, amount[step], planes);
    if (step == kContrast) image::change_contrast(shape, amount[step], planes);
    if (step == kSaturation) image::change_saturation(shape, amount[step], planes);
    if (step == kHue) image::change_hue(shape, amount[step], planes);
  }
}

}  // namespace stoker::dataset
