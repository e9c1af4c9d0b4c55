#include "shared/dataset/augmentation.h"

#include <algorithm>
#include <cstdio>
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
  Augmentation augmentation;
  const config::Transforms* const transforms = set.config.transforms();
  if (transforms == nullptr) return augmentation;
  const auto wrong = [&set](const std::string& what) { return set.wrong("transforms", what); };
  if (const auto* const crop = config::find_transform<config::RandomCrop>(*transforms)) {
    if (crop->size.size() != 1 && crop->size.size() != 2)
      return wrong("random_crop.size must be [height, width]");
    if (crop->padding < 0 || crop->padding > kMostPad)
      return wrong("random_crop.padding must be between 0 and " + std::to_string(kMostPad));
    augmentation.size_ = {crop->size.front(), crop->size.back()};
    augmentation.pad_ = static_cast<uint32_t>(crop->padding);
  }
  if (const auto* const flip = config::find_transform<config::RandomHorizontalFlip>(*transforms)) {
    if (!(flip->p >= 0 && flip->p <= 1))
      return wrong("random_horizontal_flip.p must be a probability from 0 to 1");
    augmentation.flip_ = flip->p;
  }
  if (const auto* const jitter = config::find_transform<config::ColorJitter>(*transforms)) {
    augmentation.strength_ = {jitter->brightness, jitter->contrast, jitter->saturation,
                              jitter->hue};
    const bool fits = std::ranges::all_of(
        augmentation.strength_, [](double strength) { return strength >= 0 && strength <= 100; });
    if (!fits || jitter->hue > kMostHue)
      return wrong(
          "color_jitter: brightness, contrast, saturation and hue must be between 0 and 100, hue "
          "at most 0.5");
  }
  return augmentation;
}

bool Augmentation::jitters() const {
  return std::any_of(strength_.begin(), strength_.end(), [](double value) { return value > 0; });
}

std::string Augmentation::to_text() const {
  std::string text;
  if (pad_ > 0) text += " padding=" + std::to_string(pad_);
  if (flip_ > 0) text += " flip=" + exact_text(flip_);
  if (!jitters()) return text;
  text += " color_jitter=";
  for (size_t step = 0; step < kSteps; ++step)
    text += (step == 0 ? "" : ",") + exact_text(strength_[step]);
  return text;
}

Augmentation::Shift Augmentation::draw_shift(const DrawKey& draw) const {
  Draws draws(draw, Purpose::kPad);
  const auto pad = static_cast<int32_t>(pad_);
  Shift shift;
  shift.down = static_cast<int32_t>(draws.below(2 * pad_ + 1)) - pad;
  shift.across = static_cast<int32_t>(draws.below(2 * pad_ + 1)) - pad;
  return shift;
}

bool Augmentation::draw_flip(const DrawKey& draw) const {
  return Draws(draw, Purpose::kFlip).uniform() < flip_;
}

Augmentation::Jitter Augmentation::draw_jitter(const DrawKey& draw) const {
  Draws draws(draw, Purpose::kJitter);
  Jitter jitter;
  for (uint32_t left = kSteps; left > 1; --left)
    std::swap(jitter.order[left - 1], jitter.order[draws.below(left)]);
  for (const Step step : {kBrightness, kContrast, kSaturation})
    jitter.amount[step] = draws.uniform(std::max(0.0, 1 - strength_[step]), 1 + strength_[step]);
  jitter.amount[kHue] = draws.uniform(-strength_[kHue], strength_[kHue]);
  return jitter;
}

void Augmentation::apply(const image::PictureShape& shape, const DrawKey& draw,
                         std::span<std::byte> planes) const {
  if (pad_ > 0) {
    const Shift shift = draw_shift(draw);
    image::shift(shape, shift.down, shift.across, planes);
  }
  if (flip_ > 0 && draw_flip(draw)) image::mirror(shape, planes);
  if (!jitters()) return;
  const Jitter jitter = draw_jitter(draw);
  for (const Step step : jitter.order) {
    const double amount = jitter.amount[step];
    if (strength_[step] == 0) continue;
    if (step == kBrightness) image::change_brightness(shape, amount, planes);
    if (step == kContrast) image::change_contrast(shape, amount, planes);
    if (step == kSaturation) image::change_saturation(shape, amount, planes);
    if (step == kHue) image::change_hue(shape, amount, planes);
  }
}

std::vector<std::string> Augmentation::describe(const DrawKey& draw) const {
  constexpr std::array<const char*, kSteps> kNames{"brightness", "contrast", "saturation", "hue"};
  std::vector<std::string> parts;
  if (pad_ > 0) {
    const Shift shift = draw_shift(draw);
    parts.push_back("shift=" + std::to_string(shift.down) + "," + std::to_string(shift.across));
  }
  if (flip_ > 0 && draw_flip(draw)) parts.emplace_back("flip");
  if (!jitters()) return parts;
  const Jitter jitter = draw_jitter(draw);
  for (const Step step : jitter.order) {
    if (strength_[step] == 0) continue;
    char amount[32];
    std::snprintf(amount, sizeof amount, "=%.3f", jitter.amount[step]);
    parts.push_back(std::string(kNames[step]) + amount);
  }
  return parts;
}

}  // namespace stoker::dataset
