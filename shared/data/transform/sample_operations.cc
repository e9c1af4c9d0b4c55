#include "shared/data/transform/sample_operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace stoker::data::transform {
namespace {

using image::Operator;

constexpr int kErasingAttempts = 10;

// One number x is the range [-x, x].
double uniform_in(const std::vector<double>& range, CounterRng& rng) {
  return range.size() == 1 ? rng.uniform(-range[0], range[0]) : rng.uniform(range[0], range[1]);
}

struct IsActive {
  bool operator()(const config::RandomCrop& crop) const { return crop.padding > 0; }
  bool operator()(const config::ColorJitter& jitter) const {
    return jitter.brightness > 0 || jitter.contrast > 0 || jitter.saturation > 0 || jitter.hue > 0;
  }
  bool operator()(const config::RandAugment& policy) const { return policy.num_ops > 0; }
  bool operator()(const config::Normalize&) const { return false; }
  template <typename T>
  bool operator()(const T& transform) const {
    if constexpr (config::kResizes<T>)
      return false;
    else if constexpr (requires { transform.p; })
      return transform.p > 0;
    else
      return true;
  }
};

// A member function per transform: adds its operators to operations_.
class OperationSampler {
 public:
  OperationSampler(const image::ImageShape& shape, const RandomKey& random_key,
                   Operations& operations)
      : shape_(shape), random_key_(random_key), operations_(operations) {}

  // A position in the padded image.
  void operator()(const config::RandomCrop& crop) {
    CounterRng rng = stream(RandomStream::kPad);
    const auto positions = static_cast<uint32_t>(2 * crop.padding + 1);
    const auto padding = static_cast<double>(crop.padding);
    const double down = rng.below(positions) - padding;
    const double across = rng.below(positions) - padding;
    add({.name = Operator::kShift, .numbers = {down, across}});
  }
  void operator()(const config::RandomHorizontalFlip& flip) {
    simple(RandomStream::kFlip, flip.p, Operator::kHorizontalFlip);
  }
  void operator()(const config::RandomVerticalFlip& flip) {
    simple(RandomStream::kVerticalFlip, flip.p, Operator::kVerticalFlip);
  }
  void operator()(const config::RandomRotation& rotation) {
    CounterRng rng = stream(RandomStream::kRotation);
    // rotate() turns the other way.
    add_grid(
        {.name = Operator::kAffine, .numbers = {-uniform_in(rotation.degrees, rng), 0, 0, 1, 0, 0}},
        rotation);
  }
  void operator()(const config::RandomAffine& affine) {
    CounterRng rng = stream(RandomStream::kAffine);
    image::Operation operation{.name = Operator::kAffine, .numbers = {0, 0, 0, 1, 0, 0}};
    std::array<double, 8>& numbers = operation.numbers;
    numbers[0] = uniform_in(affine.degrees, rng);
    if (!affine.translate.empty()) {
      const double x = affine.translate[0] * shape_.width, y = affine.translate[1] * shape_.height;
      numbers[1] = std::nearbyint(rng.uniform(-x, x));
      numbers[2] = std::nearbyint(rng.uniform(-y, y));
    }
    if (!affine.scale.empty()) numbers[3] = uniform_in(affine.scale, rng);
    const std::vector<double>& shear = affine.shear;
    if (!shear.empty()) numbers[4] = uniform_in(shear, rng);
    if (shear.size() == 4) numbers[5] = rng.uniform(shear[2], shear[3]);
    add_grid(operation, affine);
  }
  void operator()(const config::RandomPerspective& perspective) {
    CounterRng rng = stream(RandomStream::kPerspective);
    if (rng.uniform() >= perspective.p) return;
    const double width = shape_.width, height = shape_.height;
    const auto bound_of = [&perspective](uint32_t side) {
      return static_cast<uint32_t>(perspective.distortion_scale * (side / 2)) + 1;
    };
    // How far each corner moves inward.
    std::array<image::Point, 4> by;
    for (image::Point& point : by) {
      point.x = rng.below(bound_of(shape_.width));
      point.y = rng.below(bound_of(shape_.height));
    }
    const auto coefficients = image::perspective_coefficients(
        {{{0, 0}, {width - 1, 0}, {width - 1, height - 1}, {0, height - 1}}},
        {{{by[0].x, by[0].y},
          {width - 1 - by[1].x, by[1].y},
          {width - 1 - by[2].x, height - 1 - by[2].y},
          {by[3].x, height - 1 - by[3].y}}});
    if (!coefficients) return;  // torchvision raises, or takes what rounding leaves
    add_grid({.name = Operator::kPerspective, .numbers = *coefficients}, perspective);
  }
  // Its parts in random order.
  void operator()(const config::ColorJitter& jitter) {
    CounterRng rng = stream(RandomStream::kJitter);
    constexpr std::array kParts{Operator::kBrightness, Operator::kContrast, Operator::kSaturation,
                                Operator::kHue};
    const std::array strengths{jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue};
    std::array<size_t, 4> order{0, 1, 2, 3};
    for (uint32_t left = 4; left > 1; --left) std::swap(order[left - 1], order[rng.below(left)]);
    std::array<double, 4> amounts{};
    for (size_t part = 0; part < 3; ++part)
      amounts[part] = rng.uniform(std::max(0.0, 1 - strengths[part]), 1 + strengths[part]);
    amounts[3] = rng.uniform(-strengths[3], strengths[3]);
    for (const size_t part : order)
      if (strengths[part] > 0) add({.name = kParts[part], .numbers = {amounts[part]}});
  }
  void operator()(const config::GaussianBlur& blur) {
    CounterRng rng = stream(RandomStream::kBlur);
    const double sigma = rng.uniform(blur.sigma.front(), blur.sigma.back());
    add({.name = Operator::kGaussianBlur,
         .numbers = {static_cast<double>(blur.kernel_size), sigma}});
  }
  void operator()(const config::RandomGrayscale& grayscale) {
    simple(RandomStream::kGrayscale, grayscale.p, Operator::kGrayscale);
  }
  void operator()(const config::RandomInvert& invert) {
    simple(RandomStream::kInvert, invert.p, Operator::kInvert);
  }
  void operator()(const config::RandomPosterize& posterize) {
    simple(RandomStream::kPosterize, posterize.p, Operator::kPosterize,
           static_cast<double>(posterize.bits));
  }
  void operator()(const config::RandomSolarize& solarize) {
    simple(RandomStream::kSolarize, solarize.p, Operator::kSolarize, solarize.threshold);
  }
  void operator()(const config::RandomAdjustSharpness& sharpness) {
    simple(RandomStream::kSharpness, sharpness.p, Operator::kSharpness, sharpness.sharpness_factor);
  }
  void operator()(const config::RandomAutocontrast& autocontrast) {
    simple(RandomStream::kAutocontrast, autocontrast.p, Operator::kAutocontrast);
  }
  void operator()(const config::RandomEqualize& equalize) {
    simple(RandomStream::kEqualize, equalize.p, Operator::kEqualize);
  }
  void operator()(const config::RandAugment& policy) { choose(policy, RandomStream::kRandAugment); }
  void operator()(const config::TrivialAugmentWide& policy) {
    choose(policy, RandomStream::kTrivialAugment);
  }
  void operator()(const config::AutoAugment& policy) { choose(policy, RandomStream::kAutoAugment); }
  void operator()(const config::AugMix& policy) { choose(policy, RandomStream::kAugMix); }
  void operator()(const config::RandomErasing& erasing) {
    CounterRng rng = stream(RandomStream::kErasing);
    if (rng.uniform() >= erasing.p) return;
    const double pixels = double(shape_.height) * shape_.width;
    for (int i = 0; i < kErasingAttempts; ++i) {
      const double area = pixels * rng.uniform(erasing.scale[0], erasing.scale[1]);
      const double ratio =
          std::exp(rng.uniform(std::log(erasing.ratio[0]), std::log(erasing.ratio[1])));
      const double height = std::nearbyint(std::sqrt(area * ratio));
      const double width = std::nearbyint(std::sqrt(area / ratio));
      if (height >= shape_.height || width >= shape_.width) continue;
      const double top = rng.below(shape_.height - static_cast<uint32_t>(height) + 1);
      const double left = rng.below(shape_.width - static_cast<uint32_t>(width) + 1);
      add({.name = Operator::kErase,
           .numbers = {top, left, height, width},
           .fill = fill_of(erasing.value)});
      return;
    }
  }
  template <typename T>
  void operator()(const T&) {
    static_assert(config::kResizes<T> || std::is_same_v<T, config::Normalize>);
  }

 private:
  CounterRng stream(RandomStream purpose) const { return {random_key_, purpose}; }
  void add(const image::Operation& operation) { operations_.push_back(operation); }
  // With the interpolation and the fill of `transform`.
  template <typename T>
  void add_grid(image::Operation operation, const T& transform) {
    operation.interpolation = interpolation_of(transform.interpolation);
    operation.fill = fill_of(transform.fill);
    add(operation);
  }
  // An operator that is applied with probability `p`.
  void simple(RandomStream purpose, double p, Operator name, double number = 0) {
    if (stream(purpose).uniform() < p) add({.name = name, .numbers = {number}});
  }
  template <typename T>
  void choose(const T& policy, RandomStream purpose) {
    CounterRng rng = stream(purpose);
    sample_policy(policy, shape_, rng, operations_);
  }

  const image::ImageShape& shape_;
  const RandomKey& random_key_;
  Operations& operations_;
};

}  // namespace

bool is_active(const config::Transform& transform) { return std::visit(IsActive{}, transform); }

void sample_operations(const config::Transform& transform, const image::ImageShape& shape,
                       const RandomKey& random_key, Operations& operations) {
  std::visit(OperationSampler(shape, random_key, operations), transform);
}

}  // namespace stoker::data::transform
