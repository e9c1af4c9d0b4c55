#include "shared/data/transform/augment_policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "shared/data/transform/gamma_variate.h"

namespace stoker::data::transform {
namespace {

using enum PolicyOperator;

// In the order of PolicyOperator: torchvision's spaces have its first 14 operators, AutoAugment's also
// invert, but not identity.
constexpr uint32_t kOperatorsWithIdentity = static_cast<uint32_t>(kEqualize) + 1;

// AugMix: those without brightness, color, contrast and sharpness come first.
constexpr std::array kAugMixOperators{
    kShearX,       kShearY,   kTranslateX, kTranslateY, kRotate,   kPosterize, kSolarize,
    kAutocontrast, kEqualize, kBrightness, kColor,      kContrast, kSharpness};
constexpr uint32_t kPartialAugMixOperators = 9;
constexpr int64_t kAugMixBins = 10;

struct SpaceLimits {
  float shear;             // tangent
  double translated_part;  // of the side of the image; 0: translated_pixels
  float translated_pixels;
  float degrees;
  float factor;           // distance from 1
  float bits, bits_less;  // without and with the largest magnitude: bits - bits_less
};

// In the order of AugmentSpace.
constexpr std::array<SpaceLimits, 4> kSpaces{{
    {0.3f, 150.0 / 331, 0, 30, 0.9f, 8, 4},
    {0.99f, 0, 32, 135, 0.99f, 8, 6},
    {0.3f, 150.0 / 331, 0, 30, 0.9f, 8, 4},
    {0.3f, 1.0 / 3, 0, 30, 0.9f, 4, 4},
}};

// Element `bin` of torch.linspace(0, last, bins), which is computed from both ends.
float linspace(float first, float last, int64_t bin, int64_t bins) {
  const float step = (last - first) / static_cast<float>(bins - 1);
  // With one rounding, as PyTorch's vector instructions: a translation of 15.9999 pixels is 15.
  if (bin < bins / 2) return std::fma(step, static_cast<float>(bin), first);
  return std::fma(-step, static_cast<float>(bins - bin - 1), last);
}

float translation(const SpaceLimits& limits, uint32_t side, int64_t bin, int64_t bins) {
  const double last = limits.translated_part > 0 ? limits.translated_part * side
                                                 : static_cast<double>(limits.translated_pixels);
  return linspace(0, static_cast<float>(last), bin, bins);
}

image::Operation affine_of(double angle, double x, double y, double shear_x, double shear_y) {
  return {.name = image::Operator::kAffine, .numbers = {angle, x, y, 1, shear_x, shear_y}};
}

// Shears from the top left corner.
image::Operation sheared(double shear_x, double shear_y, const image::ImageShape& shape) {
  image::Operation operation = affine_of(0, 0, 0, shear_x, shear_y);
  operation.numbers[6] = -0.5 * shape.width;
  operation.numbers[7] = -0.5 * shape.height;
  return operation;
}

image::Operation simple(image::Operator name, double number = 0) {
  return {.name = name, .numbers = {number}};
}

// Adds operators with the interpolation and the fill of a policy.
template <typename Config>
class PolicySampler {
 public:
  PolicySampler(const Config& policy, AugmentSpace space, const image::ImageShape& shape,
                CounterRng& rng, Operations& operations)
      : interpolation_(interpolation_of(policy.interpolation)),
        fill_(fill_of(policy.fill)),
        space_(space),
        shape_(shape),
        rng_(rng),
        operations_(operations) {}

  // The sign is drawn for every operator, so that later random numbers do not depend on it.
  void add(PolicyOperator name, int64_t bin, int64_t bins) {
    const bool is_negative = rng_.uniform() < 0.5;
    double magnitude =
        static_cast<double>(magnitude_of(space_, name, bin, bins, shape_).value_or(0.0f));
    if (is_negative && is_signed(name)) magnitude = -magnitude;
    std::optional<image::Operation> operation = operation_of(name, magnitude, shape_);
    if (!operation) return;
    operation->interpolation = interpolation_;
    operation->fill = fill_;
    operations_.push_back(*operation);
  }

 private:
  const image::Interpolation interpolation_;
  const image::Fill fill_;
  const AugmentSpace space_;
  const image::ImageShape& shape_;
  CounterRng& rng_;
  Operations& operations_;
};

struct PolicyStep {
  PolicyOperator name;
  double p;
  int64_t bin;
};
constexpr int64_t kAutoAugmentBins = 10;
// Of AutoAugment: one of the pairs is applied.
using Policy = std::array<std::array<PolicyStep, 2>, 25>;

constexpr Policy kImagenetPolicy{{
    {{{kPosterize, 0.4, 8}, {kRotate, 0.6, 9}}},  {{{kSolarize, 0.6, 5}, {kAutocontrast, 0.6, 0}}},
    {{{kEqualize, 0.8, 0}, {kEqualize, 0.6, 0}}}, {{{kPosterize, 0.6, 7}, {kPosterize, 0.6, 6}}},
    {{{kEqualize, 0.4, 0}, {kSolarize, 0.2, 4}}}, {{{kEqualize, 0.4, 0}, {kRotate, 0.8, 8}}},
    {{{kSolarize, 0.6, 3}, {kEqualize, 0.6, 0}}}, {{{kPosterize, 0.8, 5}, {kEqualize, 1.0, 0}}},
    {{{kRotate, 0.2, 3}, {kSolarize, 0.6, 8}}},   {{{kEqualize, 0.6, 0}, {kPosterize, 0.4, 6}}},
    {{{kRotate, 0.8, 8}, {kColor, 0.4, 0}}},      {{{kRotate, 0.4, 9}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0.0, 0}, {kEqualize, 0.8, 0}}}, {{{kInvert, 0.6, 0}, {kEqualize, 1.0, 0}}},
    {{{kColor, 0.6, 4}, {kContrast, 1.0, 8}}},    {{{kRotate, 0.8, 8}, {kColor, 1.0, 2}}},
    {{{kColor, 0.8, 8}, {kSolarize, 0.8, 7}}},    {{{kSharpness, 0.4, 7}, {kInvert, 0.6, 0}}},
    {{{kShearX, 0.6, 5}, {kEqualize, 1.0, 0}}},   {{{kColor, 0.4, 0}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0.4, 0}, {kSolarize, 0.2, 4}}}, {{{kSolarize, 0.6, 5}, {kAutocontrast, 0.6, 0}}},
    {{{kInvert, 0.6, 0}, {kEqualize, 1.0, 0}}},   {{{kColor, 0.6, 4}, {kContrast, 1.0, 8}}},
    {{{kEqualize, 0.8, 0}, {kEqualize, 0.6, 0}}},
}};

constexpr Policy kCifar10Policy{{
    {{{kInvert, 0.1, 0}, {kContrast, 0.2, 6}}},
    {{{kRotate, 0.7, 2}, {kTranslateX, 0.3, 9}}},
    {{{kSharpness, 0.8, 1}, {kSharpness, 0.9, 3}}},
    {{{kShearY, 0.5, 8}, {kTranslateY, 0.7, 9}}},
    {{{kAutocontrast, 0.5, 0}, {kEqualize, 0.9, 0}}},
    {{{kShearY, 0.2, 7}, {kPosterize, 0.3, 7}}},
    {{{kColor, 0.4, 3}, {kBrightness, 0.6, 7}}},
    {{{kSharpness, 0.3, 9}, {kBrightness, 0.7, 9}}},
    {{{kEqualize, 0.6, 0}, {kEqualize, 0.5, 0}}},
    {{{kContrast, 0.6, 7}, {kSharpness, 0.6, 5}}},
    {{{kColor, 0.7, 7}, {kTranslateX, 0.5, 8}}},
    {{{kEqualize, 0.3, 0}, {kAutocontrast, 0.4, 0}}},
    {{{kTranslateY, 0.4, 3}, {kSharpness, 0.2, 6}}},
    {{{kBrightness, 0.9, 6}, {kColor, 0.2, 8}}},
    {{{kSolarize, 0.5, 2}, {kInvert, 0.0, 0}}},
    {{{kEqualize, 0.2, 0}, {kAutocontrast, 0.6, 0}}},
    {{{kEqualize, 0.2, 0}, {kEqualize, 0.6, 0}}},
    {{{kColor, 0.9, 9}, {kEqualize, 0.6, 0}}},
    {{{kAutocontrast, 0.8, 0}, {kSolarize, 0.2, 8}}},
    {{{kBrightness, 0.1, 3}, {kColor, 0.7, 0}}},
    {{{kSolarize, 0.4, 5}, {kAutocontrast, 0.9, 0}}},
    {{{kTranslateY, 0.9, 9}, {kTranslateY, 0.7, 9}}},
    {{{kAutocontrast, 0.9, 0}, {kSolarize, 0.8, 3}}},
    {{{kEqualize, 0.8, 0}, {kInvert, 0.1, 0}}},
    {{{kTranslateY, 0.7, 9}, {kAutocontrast, 0.9, 0}}},
}};

constexpr Policy kSvhnPolicy{{
    {{{kShearX, 0.9, 4}, {kInvert, 0.2, 0}}},       {{{kShearY, 0.9, 8}, {kInvert, 0.7, 0}}},
    {{{kEqualize, 0.6, 0}, {kSolarize, 0.6, 6}}},   {{{kInvert, 0.9, 0}, {kEqualize, 0.6, 0}}},
    {{{kEqualize, 0.6, 0}, {kRotate, 0.9, 3}}},     {{{kShearX, 0.9, 4}, {kAutocontrast, 0.8, 0}}},
    {{{kShearY, 0.9, 8}, {kInvert, 0.4, 0}}},       {{{kShearY, 0.9, 5}, {kSolarize, 0.2, 6}}},
    {{{kInvert, 0.9, 0}, {kAutocontrast, 0.8, 0}}}, {{{kEqualize, 0.6, 0}, {kRotate, 0.9, 3}}},
    {{{kShearX, 0.9, 4}, {kSolarize, 0.3, 3}}},     {{{kShearY, 0.8, 8}, {kInvert, 0.7, 0}}},
    {{{kEqualize, 0.9, 0}, {kTranslateY, 0.6, 6}}}, {{{kInvert, 0.9, 0}, {kEqualize, 0.6, 0}}},
    {{{kContrast, 0.3, 3}, {kRotate, 0.8, 4}}},     {{{kInvert, 0.8, 0}, {kTranslateY, 0.0, 2}}},
    {{{kShearY, 0.7, 6}, {kSolarize, 0.4, 8}}},     {{{kInvert, 0.6, 0}, {kRotate, 0.8, 4}}},
    {{{kShearY, 0.3, 7}, {kTranslateX, 0.9, 3}}},   {{{kShearX, 0.1, 6}, {kInvert, 0.6, 0}}},
    {{{kSolarize, 0.7, 2}, {kTranslateY, 0.6, 7}}}, {{{kShearY, 0.8, 4}, {kInvert, 0.8, 0}}},
    {{{kShearX, 0.7, 9}, {kTranslateY, 0.8, 3}}},   {{{kShearY, 0.8, 5}, {kAutocontrast, 0.7, 0}}},
    {{{kShearX, 0.7, 2}, {kInvert, 0.1, 0}}},
}};

const Policy& policy_of(config::AugmentPolicy name) {
  switch (name) {
    case config::AugmentPolicy::kImagenet:
      return kImagenetPolicy;
    case config::AugmentPolicy::kCifar10:
      return kCifar10Policy;
    case config::AugmentPolicy::kSvhn:
      return kSvhnPolicy;
  }
  return kImagenetPolicy;
}

// A Dirichlet variate of `count` equal parameters.
std::vector<double> sample_dirichlet(double alpha, size_t count, CounterRng& rng) {
  std::vector<double> logs;
  for (size_t i = 0; i < count; ++i) logs.push_back(sample_log_gamma(alpha, rng));
  double top = logs.front();
  for (const double each : logs) top = std::max(top, each);
  double sum = 0;
  for (double& each : logs) sum += each = std::exp(each - top);
  for (double& each : logs) each /= sum;
  return logs;
}

}  // namespace

std::optional<image::Operation> operation_of(PolicyOperator name, double magnitude,
                                             const image::ImageShape& shape) {
  const double degrees = std::atan(magnitude) * 180 / std::numbers::pi;
  switch (name) {
    case kIdentity:
      return std::nullopt;
    case kShearX:
      return sheared(degrees, 0, shape);
    case kShearY:
      return sheared(0, degrees, shape);
    case kTranslateX:
      return affine_of(0, std::trunc(magnitude), 0, 0, 0);
    case kTranslateY:
      return affine_of(0, 0, std::trunc(magnitude), 0, 0);
    case kRotate:
      return affine_of(-magnitude, 0, 0, 0, 0);  // rotate() turns the other way
    case kBrightness:
      return simple(image::Operator::kBrightness, 1 + magnitude);
    case kColor:
      return simple(image::Operator::kSaturation, 1 + magnitude);
    case kContrast:
      return simple(image::Operator::kContrast, 1 + magnitude);
    case kSharpness:
      return simple(image::Operator::kSharpness, 1 + magnitude);
    case kPosterize:
      return simple(image::Operator::kPosterize, magnitude);
    case kSolarize:
      return simple(image::Operator::kSolarize, 255 * magnitude);
    case kAutocontrast:
      return simple(image::Operator::kAutocontrast);
    case kEqualize:
      return simple(image::Operator::kEqualize);
    case kInvert:
      return simple(image::Operator::kInvert);
  }
  return std::nullopt;
}

image::Fill fill_of(const std::vector<double>& levels) {
  if (levels.empty()) return std::nullopt;
  std::array<uint8_t, 3> fill{};
  for (size_t c = 0; c < fill.size(); ++c)
    fill[c] = static_cast<uint8_t>(levels.size() == 1 ? levels[0] : levels[c]);
  return fill;
}

image::Interpolation interpolation_of(config::Interpolation interpolation) {
  return static_cast<image::Interpolation>(interpolation);
}
static_assert(static_cast<int>(config::Interpolation::kBicubic) ==
              static_cast<int>(image::Interpolation::kBicubic));

bool is_signed(PolicyOperator name) { return name >= kShearX && name <= kSharpness; }

std::optional<float> magnitude_of(AugmentSpace space, PolicyOperator name, int64_t bin,
                                  int64_t bins, const image::ImageShape& shape) {
  const SpaceLimits& limits = kSpaces[static_cast<size_t>(space)];
  switch (name) {
    case kShearX:
    case kShearY:
      return linspace(0, limits.shear, bin, bins);
    case kTranslateX:
      return translation(limits, shape.width, bin, bins);
    case kTranslateY:
      return translation(limits, shape.height, bin, bins);
    case kRotate:
      return linspace(0, limits.degrees, bin, bins);
    case kBrightness:
    case kColor:
    case kContrast:
    case kSharpness:
      return linspace(0, limits.factor, bin, bins);
    case kPosterize: {
      const float step =
          static_cast<float>(static_cast<double>(bins - 1) / static_cast<double>(limits.bits_less));
      return std::nearbyint(limits.bits - static_cast<float>(bin) / step);
    }
    case kSolarize:
      return linspace(1, 0, bin, bins);
    case kIdentity:
    case kAutocontrast:
    case kEqualize:
    case kInvert:
      break;
  }
  return std::nullopt;
}

void sample_policy(const config::RandAugment& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations) {
  PolicySampler sampler(policy, AugmentSpace::kRandAugment, shape, rng, operations);
  for (int64_t i = 0; i < policy.num_ops; ++i) {
    const auto name = static_cast<PolicyOperator>(rng.below(kOperatorsWithIdentity));
    sampler.add(name, policy.magnitude, policy.num_magnitude_bins);
  }
}

void sample_policy(const config::TrivialAugmentWide& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations) {
  const auto name = static_cast<PolicyOperator>(rng.below(kOperatorsWithIdentity));
  const int64_t bin = rng.below(static_cast<uint32_t>(policy.num_magnitude_bins));
  PolicySampler(policy, AugmentSpace::kTrivialAugmentWide, shape, rng, operations)
      .add(name, bin, policy.num_magnitude_bins);
}

void sample_policy(const config::AutoAugment& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations) {
  const Policy& pairs = policy_of(policy.policy);
  PolicySampler sampler(policy, AugmentSpace::kAutoAugment, shape, rng, operations);
  for (const PolicyStep& step : pairs[rng.below(static_cast<uint32_t>(pairs.size()))])
    if (rng.uniform() < step.p) sampler.add(step.name, step.bin, kAutoAugmentBins);
}

void sample_policy(const config::AugMix& policy, const image::ImageShape& shape, CounterRng& rng,
                   Operations& operations) {
  const auto width = static_cast<size_t>(policy.mixture_width);
  const std::vector<double> mix = sample_dirichlet(policy.alpha, 2, rng);
  const std::vector<double> weights = sample_dirichlet(policy.alpha, width, rng);
  const uint32_t choices =
      policy.all_ops ? static_cast<uint32_t>(kAugMixOperators.size()) : kPartialAugMixOperators;
  PolicySampler sampler(policy, AugmentSpace::kAugMix, shape, rng, operations);
  operations.push_back(simple(image::Operator::kMixBegin, mix[0]));
  for (size_t chain = 0; chain < width; ++chain) {
    const int64_t depth = policy.chain_depth.value_or(1 + int64_t{rng.below(3)});
    for (int64_t i = 0; i < depth; ++i) {
      const PolicyOperator name = kAugMixOperators[rng.below(choices)];
      const int64_t bin = rng.below(static_cast<uint32_t>(policy.severity));
      sampler.add(name, bin, kAugMixBins);
    }
    operations.push_back(simple(image::Operator::kMixAdd, mix[1] * weights[chain]));
  }
  operations.push_back(simple(image::Operator::kMixEnd));
}

}  // namespace stoker::data::transform
