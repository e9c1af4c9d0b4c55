#include "shared/data/transform/random_transforms.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/base/tensor_role.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/stage_timer.h"
#include "shared/data/transform/image_decoder_input.h"
#include "shared/data/transform/image_geometry.h"

namespace stoker::data::transform {
namespace {

constexpr int64_t kMaxPad = 16383;
constexpr double kMaxHue = 0.5;

// The bounds that the reader of the configuration checks too; empty: within them.
struct ErrorOf {
  std::string operator()(const config::RandomCrop& crop) const {
    if (crop.size.size() != 1 && crop.size.size() != 2)
      return "random_crop.size must be [height, width]";
    if (crop.padding < 0 || crop.padding > kMaxPad)
      return "random_crop.padding must be between 0 and " + std::to_string(kMaxPad);
    return {};
  }
  std::string operator()(const config::ColorJitter& jitter) const {
    const std::array strengths{jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue};
    const bool fits = std::ranges::all_of(
        strengths, [](double strength) { return strength >= 0 && strength <= 100; });
    if (fits && jitter.hue <= kMaxHue) return {};
    return "color_jitter: brightness, contrast, saturation and hue must be between 0 and 100, hue "
           "at most 0.5";
  }
  template <typename T>
  std::string operator()(const T& transform) const {
    if constexpr (requires { transform.p; })
      if (!(transform.p >= 0 && transform.p <= 1))
        return std::string(config::name_of(transform)) + ".p must be a probability from 0 to 1";
    return {};
  }
};

// The text of the oldest transforms is part of the fingerprints of earlier runs.
struct TextOf {
  std::string operator()(const config::RandomCrop& crop) const {
    return "padding=" + std::to_string(crop.padding);
  }
  std::string operator()(const config::RandomHorizontalFlip& flip) const {
    return "flip=" + format_exact(flip.p);
  }
  std::string operator()(const config::ColorJitter& jitter) const {
    return "color_jitter=" + format_exact(jitter.brightness) + ',' + format_exact(jitter.contrast) +
           ',' + format_exact(jitter.saturation) + ',' + format_exact(jitter.hue);
  }
  template <typename T>
  std::string operator()(const T& transform) const {
    return config::to_text(transform);
  }
};

std::string sides_of(const image::ImageShape& shape) {
  return '[' + std::to_string(shape.height) + ", " + std::to_string(shape.width) + ']';
}

// Why a transform cannot be applied to images of a shape; empty: it can.
struct MisfitOf {
  const image::ImageShape& shape;

  std::string operator()(const config::RandomCrop& crop) const {
    const std::vector<int64_t> size{crop.size.front(), crop.size.back()};
    if (size != std::vector<int64_t>{shape.height, shape.width})
      return "random_crop.size must be that of the images, " + sides_of(shape);
    if (crop.padding >= std::min(shape.height, shape.width))
      return "random_crop.padding is " + std::to_string(crop.padding) +
             "; it must be less than the images' sides, " + sides_of(shape);
    return {};
  }
  std::string operator()(const config::GaussianBlur& blur) const {
    if (blur.kernel_size / 2 < std::min(shape.height, shape.width)) return {};
    return "gaussian_blur.kernel_size is " + std::to_string(blur.kernel_size) +
           "; half of it must be less than the images' sides, " + sides_of(shape);
  }
  template <typename T>
  std::string operator()(const T& transform) const {
    if constexpr (requires { transform.fill; })
      return levels(transform.fill, std::string(config::name_of(transform)) + ".fill");
    else if constexpr (requires { transform.value; })
      return levels(transform.value, std::string(config::name_of(transform)) + ".value");
    else
      return {};
  }
  std::string levels(const std::vector<double>& given, const std::string& key) const {
    if (given.size() <= 1 || given.size() == shape.channels) return {};
    return key + " has " + std::to_string(given.size()) + " levels, but images have " +
           std::to_string(shape.channels) + " channel" + (shape.channels == 1 ? "" : "s");
  }
};

Status check_shape(const DatasetRequest& request, const config::Transforms& transforms,
                   const image::ImageShape& shape) {
  for (const config::Transform& each : transforms) {
    const std::string misfit = std::visit(MisfitOf{shape}, each);
    if (!misfit.empty()) return request.config_error("transforms", misfit);
  }
  return {};
}

template <typename T, typename... Ts>
constexpr bool kIsOneOf = (std::is_same_v<T, Ts> || ...);

bool can_move_pixels(const config::Transform& transform) {
  return std::visit(
      []<typename T>(const T&) {
        return kIsOneOf<T, config::RandomCrop, config::RandomHorizontalFlip,
                        config::RandomVerticalFlip, config::RandomRotation, config::RandomAffine,
                        config::RandomPerspective, config::RandAugment, config::TrivialAugmentWide,
                        config::AutoAugment, config::AugMix>;
      },
      transform);
}

// The same movement of classes: of the nearest pixel, and with ignored ones from outside.
image::Operation of_mask(image::Operation operation) {
  if (operation.name == image::Operator::kShift)
    operation = {.name = image::Operator::kAffine,
                 .numbers = {0, -operation.numbers[1], -operation.numbers[0], 1}};
  operation.interpolation = image::Interpolation::kNearest;
  constexpr auto kIgnored = std::to_integer<uint8_t>(kIgnoredClass);
  operation.fill = {kIgnored, kIgnored, kIgnored};
  return operation;
}

bool has_mask(const std::vector<TensorSpec>& sample) {
  return sample.size() > 1 && role_of(sample[1]) == TensorRole::kMask;
}

// Reused by the thread, because a sample must not allocate.
Operations& operations_of_thread() {
  thread_local Operations operations;
  operations.clear();
  return operations;
}

}  // namespace

Result<RandomTransforms> RandomTransforms::of(const DatasetRequest& request) {
  RandomTransforms augmentation;
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr) return augmentation;
  for (const config::Transform& each : *transforms) {
    const std::string error = std::visit(ErrorOf{}, each);
    if (!error.empty()) return request.config_error("transforms", error);
    if (is_active(each)) augmentation.transforms_.push_back(each);
  }
  return augmentation;
}

Result<RandomTransforms> RandomTransforms::of(const DatasetRequest& request,
                                              const std::vector<TensorSpec>& sample) {
  const config::Transforms* const transforms = request.config.transforms();
  if (transforms == nullptr || transforms->empty()) return RandomTransforms();
  const TensorSpec& input = sample.front();
  if (!is_image(input))
    return request.config_error("transforms",
                                "need uint8 images; the input is " + to_string(input));
  STOKER_ASSIGN_OR_RETURN(RandomTransforms augmentation, of(request));
  augmentation.shape_ = {.channels = static_cast<uint32_t>(input.shape[0]),
                         .height = static_cast<uint32_t>(input.shape[1]),
                         .width = static_cast<uint32_t>(input.shape[2])};
  augmentation.has_mask_ = has_mask(sample);
  STOKER_RETURN_IF_ERROR(check_shape(request, *transforms, augmentation.shape_));
  if (augmentation.has_mask_ && config::find_transform<config::AugMix>(*transforms) != nullptr)
    return request.config_error("transforms", "aug_mix cannot be combined with a mask");
  return augmentation;
}

std::string RandomTransforms::to_text() const {
  std::string text;
  for (const config::Transform& each : transforms_) text += ' ' + std::visit(TextOf{}, each);
  return text;
}

std::string_view RandomTransforms::moving() const {
  const auto found = std::ranges::find_if(transforms_, can_move_pixels);
  return found == transforms_.end() ? std::string_view() : config::name_of(*found);
}

void RandomTransforms::sample_all(const RandomKey& random_key, Operations& operations) const {
  for (const config::Transform& each : transforms_)
    sample_operations(each, shape_, random_key, operations);
}

void RandomTransforms::apply(const RandomKey& random_key,
                             std::span<const std::span<std::byte>> sample) const {
  if (none()) return;
  const StageScope transforming(Stage::kTransform);
  Operations& operations = operations_of_thread();
  sample_all(random_key, operations);
  for (const image::Operation& each : operations) image::apply(each, shape_, sample[0]);
  if (!has_mask_) return;
  const image::ImageShape mask{.channels = 1, .height = shape_.height, .width = shape_.width};
  for (const image::Operation& each : operations)
    if (image::moves_pixels(each.name)) image::apply(of_mask(each), mask, sample[1]);
}

std::vector<std::string> RandomTransforms::describe(const RandomKey& random_key) const {
  Operations operations;
  sample_all(random_key, operations);
  std::vector<std::string> parts;
  for (const image::Operation& each : operations) parts.push_back(image::to_text(each));
  return parts;
}

namespace {

class TransformedDataset final : public DatasetDecorator, public SampleFiles {
 public:
  TransformedDataset(std::unique_ptr<Dataset> dataset, RandomTransforms augmentation)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        augmentation_(std::move(augmentation)),
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
    augmentation_.apply(random_key, outputs);
    return {};
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = dataset_->read_batch(samples, rows);
    RowOutputs outputs(rows, samples.size());
    for (size_t i = 0; i < read.good; ++i)
      augmentation_.apply(samples[i].random_key, outputs.of(i));
    return read;
  }

 private:
  const std::unique_ptr<Dataset> dataset_;
  const RandomTransforms augmentation_;
  DatasetInfo info_;
};

// The transform that moves the input only; empty: none.
Result<std::string_view> moving_transform(const DatasetRequest& request) {
  if (has_random_resized_crop(request.config)) return std::string_view("random_resized_crop");
  STOKER_ASSIGN_OR_RETURN(const RandomTransforms augmentation, RandomTransforms::of(request));
  return augmentation.moving();
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
  STOKER_ASSIGN_OR_RETURN(RandomTransforms augmentation,
                          RandomTransforms::of(request, dataset->spec()));
  if (augmentation.none()) return dataset;
  return std::unique_ptr<Dataset>(
      std::make_unique<TransformedDataset>(std::move(dataset), std::move(augmentation)));
}

}  // namespace stoker::data::transform
