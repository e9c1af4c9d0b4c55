#include "shared/data/transform/random_transforms.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/base/tensor_role.h"
#include "shared/data/counter_rng.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/stage_timer.h"
#include "shared/data/transform/image_geometry.h"
#include "shared/image/pixel_transforms.h"

namespace stoker::data::transform {
namespace {

constexpr int64_t kMaxPad = 16383;
constexpr double kMaxHue = 0.5;

}  // namespace

Result<RandomTransforms> RandomTransforms::of(const DatasetRequest& request) {
  RandomTransforms augmentation;
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr) return augmentation;
  const auto wrong = [&request](const std::string& what) {
    return request.config_error("transforms", what);
  };
  if (const auto* const crop = config::find_transform<config::RandomCrop>(*transforms)) {
    if (crop->size.size() != 1 && crop->size.size() != 2)
      return wrong("random_crop.size must be [height, width]");
    if (crop->padding < 0 || crop->padding > kMaxPad)
      return wrong("random_crop.padding must be between 0 and " + std::to_string(kMaxPad));
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
    if (!fits || jitter->hue > kMaxHue)
      return wrong(
          "color_jitter: brightness, contrast, saturation and hue must be between 0 and 100, hue "
          "at most 0.5");
  }
  return augmentation;
}

bool RandomTransforms::has_jitter() const {
  return std::any_of(strength_.begin(), strength_.end(), [](double value) { return value > 0; });
}

std::string RandomTransforms::to_text() const {
  std::string text;
  if (pad_ > 0) text += " padding=" + std::to_string(pad_);
  if (flip_ > 0) text += " flip=" + format_exact(flip_);
  if (!has_jitter()) return text;
  text += " color_jitter=";
  for (size_t step = 0; step < kSteps; ++step)
    text += (step == 0 ? "" : ",") + format_exact(strength_[step]);
  return text;
}

RandomTransforms::Shift RandomTransforms::sample_shift(const RandomKey& random_key) const {
  CounterRng rng(random_key, RandomStream::kPad);
  const auto pad = static_cast<int32_t>(pad_);
  Shift shift;
  shift.down = static_cast<int32_t>(rng.below(2 * pad_ + 1)) - pad;
  shift.across = static_cast<int32_t>(rng.below(2 * pad_ + 1)) - pad;
  return shift;
}

bool RandomTransforms::sample_flip(const RandomKey& random_key) const {
  return CounterRng(random_key, RandomStream::kFlip).uniform() < flip_;
}

RandomTransforms::Jitter RandomTransforms::sample_jitter(const RandomKey& random_key) const {
  CounterRng rng(random_key, RandomStream::kJitter);
  Jitter jitter;
  for (uint32_t left = kSteps; left > 1; --left)
    std::swap(jitter.order[left - 1], jitter.order[rng.below(left)]);
  for (const Step step : {kBrightness, kContrast, kSaturation})
    jitter.amount[step] = rng.uniform(std::max(0.0, 1 - strength_[step]), 1 + strength_[step]);
  jitter.amount[kHue] = rng.uniform(-strength_[kHue], strength_[kHue]);
  return jitter;
}

void RandomTransforms::apply(const image::ImageShape& shape, const RandomKey& random_key,
                             std::span<std::byte> planes) const {
  if (pad_ > 0) {
    const Shift shift = sample_shift(random_key);
    image::shift_with_fill(shape, shift.down, shift.across, planes);
  }
  if (flip_ > 0 && sample_flip(random_key)) image::horizontal_flip(shape, planes);
  if (!has_jitter()) return;
  const Jitter jitter = sample_jitter(random_key);
  for (const Step step : jitter.order) {
    const double amount = jitter.amount[step];
    if (strength_[step] == 0) continue;
    if (step == kBrightness) image::adjust_brightness(shape, amount, planes);
    if (step == kContrast) image::adjust_contrast(shape, amount, planes);
    if (step == kSaturation) image::adjust_saturation(shape, amount, planes);
    if (step == kHue) image::adjust_hue(shape, amount, planes);
  }
}

std::vector<std::string> RandomTransforms::describe(const RandomKey& random_key) const {
  constexpr std::array<const char*, kSteps> kNames{"brightness", "contrast", "saturation", "hue"};
  std::vector<std::string> parts;
  if (pad_ > 0) {
    const Shift shift = sample_shift(random_key);
    parts.push_back("shift=" + std::to_string(shift.down) + "," + std::to_string(shift.across));
  }
  if (flip_ > 0 && sample_flip(random_key)) parts.emplace_back("flip");
  if (!has_jitter()) return parts;
  const Jitter jitter = sample_jitter(random_key);
  for (const Step step : jitter.order) {
    if (strength_[step] == 0) continue;
    char amount[32];
    std::snprintf(amount, sizeof amount, "=%.3f", jitter.amount[step]);
    parts.push_back(std::string(kNames[step]) + amount);
  }
  return parts;
}

namespace {

class TransformedDataset final : public DatasetDecorator, public SampleFiles {
 public:
  TransformedDataset(std::unique_ptr<Dataset> dataset, const image::ImageShape& shape,
                     const RandomTransforms& augmentation)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        shape_(shape),
        augmentation_(augmentation),
        info_(dataset_->info()) {
    if (info_.maybe_files != nullptr) info_.maybe_files = this;
  }

  const DatasetInfo& info() const override { return info_; }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    dataset_->info().maybe_files->prefetch(sample, bytes);
  }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    std::string text = dataset_->info().maybe_files->describe_transforms(sample, random_key);
    for (const std::string& part : augmentation_.describe(random_key))
      text += (text.empty() ? "" : " ") + part;
    return text;
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, random_key, outputs));
    const StageScope transforming(Stage::kTransform);
    augmentation_.apply(shape_, random_key, outputs[0]);
    return {};
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = dataset_->read_batch(samples, rows);
    const StageScope transforming(Stage::kTransform);
    const size_t bytes = rows[0].size() / samples.size();
    for (size_t i = 0; i < read.good; ++i)
      augmentation_.apply(shape_, samples[i].random_key, rows[0].subspan(i * bytes, bytes));
    return read;
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  const image::ImageShape shape_;
  const RandomTransforms augmentation_;
  DatasetInfo info_;
};

Status check_random_crop(const DatasetRequest& request, const RandomTransforms& augmentation,
                         const image::ImageShape& shape) {
  const std::string sides =
      '[' + std::to_string(shape.height) + ", " + std::to_string(shape.width) + ']';
  const std::vector<int64_t> size{shape.height, shape.width};
  if (!augmentation.size().empty() && augmentation.size() != size)
    return request.config_error("transforms",
                                "random_crop.size must be that of the images, " + sides);
  if (augmentation.pad() >= std::min(shape.height, shape.width)) {
    return request.config_error("transforms",
                                "random_crop.padding is " + std::to_string(augmentation.pad()) +
                                    "; it must be less than the images' sides, " + sides);
  }
  return {};
}

}  // namespace

namespace {

// The transform that moves the input only; empty: none.
Result<std::string_view> moving_transform(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const RandomTransforms augmentation, RandomTransforms::of(request));
  return has_random_resized_crop(request.config) ? "random_resized_crop"
         : augmentation.flips()                  ? "random_horizontal_flip"
         : augmentation.pad() > 0                ? "random_crop"
                                                 : std::string_view();
}

std::string moves_input_only(std::string_view moving) {
  return std::string(moving) + " moves the input only, and the target is ";
}

}  // namespace

Status check_target(const DatasetRequest& request, std::span<const uint64_t> shape,
                    const std::vector<int64_t>& image) {
  STOKER_ASSIGN_OR_RETURN(const std::string_view moving, moving_transform(request));
  if (moving.empty() || shape.size() < 2 || image.size() != 3) return {};
  const auto are_sides = [&image](std::span<const uint64_t> sides) {
    return std::cmp_equal(sides[0], image[1]) && std::cmp_equal(sides[1], image[2]);
  };
  if (!are_sides(shape.first(2)) && !are_sides(shape.last(2))) return {};
  return request.config_error(
      "transforms", moves_input_only(moving) + "an image of " + std::to_string(image[1]) + " x " +
                        std::to_string(image[2]) +
                        " pixels; remove it, or store transformed copies of both");
}

Status warn_about_target(const DatasetRequest& request, const std::vector<TensorSpec>& sample) {
  STOKER_ASSIGN_OR_RETURN(const std::string_view moving, moving_transform(request));
  const TensorSpec& target = sample.back();
  if (moving.empty() || role_of(target) != TensorRole::kTarget || target.shape.size() != 1 ||
      !is_image(sample.front()))
    return {};
  const int64_t height = sample.front().shape[1], width = sample.front().shape[2];
  const int64_t numbers = target.shape.front();
  if (numbers % (height * width) != 0) return {};
  log_warn("settings contradictory",
           {{"key", request.key("transforms")},
            {"reason", moves_input_only(moving) + std::to_string(numbers) +
                           " numbers; remove it if they are an image of " + std::to_string(height) +
                           " x " + std::to_string(width) + " pixels"}});
  return {};
}

Status check_transforms(const DatasetRequest& request) {
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr || has_encoded_images(request.config)) return {};
  const bool resizes = config::find_transform<config::Resize>(*transforms) != nullptr ||
                       config::find_transform<config::CenterCrop>(*transforms) != nullptr ||
                       config::find_transform<config::RandomResizedCrop>(*transforms) != nullptr;
  if (!resizes) return {};
  return request.config_error(
      "transforms",
      "resize, center_crop and random_resized_crop are for encoded images, which this "
      "dataset does not have; remove them");
}

Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset) {
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr || transforms->empty()) return dataset;
  const TensorSpec& input = dataset->spec().front();
  if (!is_image(input))
    return request.config_error("transforms",
                                "need uint8 images; the input is " + to_string(input));
  STOKER_ASSIGN_OR_RETURN(const RandomTransforms augmentation, RandomTransforms::of(request));
  const image::ImageShape shape{.channels = static_cast<uint32_t>(input.shape[0]),
                                .height = static_cast<uint32_t>(input.shape[1]),
                                .width = static_cast<uint32_t>(input.shape[2])};
  STOKER_RETURN_IF_ERROR(check_random_crop(request, augmentation, shape));
  if (augmentation.none()) return dataset;
  return std::unique_ptr<Dataset>(
      std::make_unique<TransformedDataset>(std::move(dataset), shape, augmentation));
}

}  // namespace stoker::data::transform
