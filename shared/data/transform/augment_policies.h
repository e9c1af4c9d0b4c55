// augment_policies: RandAugment, TrivialAugmentWide, AutoAugment and AugMix. They choose operators of
// image_operators.h from a space, a table of operators with the largest magnitude of each, at random.
// Spaces, policies and probabilities are those of torchvision.transforms.v2; the random numbers are
// stoker's own.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shared/config/dataset_config.h"
#include "shared/data/counter_rng.h"
#include "shared/image/image_operators.h"

namespace stoker::data::transform {

using Operations = std::vector<image::Operation>;

// The operators of policies, by torchvision's names.
enum class PolicyOperator : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutocontrast,
  kEqualize,
  kInvert,
};

// The largest magnitudes of a policy's operators.
enum class AugmentSpace { kRandAugment, kTrivialAugmentWide, kAutoAugment, kAugMix };

// Magnitude `bin` of `bins`, for images of this shape: a tangent, pixels, degrees, the difference of a
// factor from 1, bits, or the fraction of a level. Empty for operators without one.
std::optional<float> magnitude_of(AugmentSpace space, PolicyOperator name, int64_t bin,
                                  int64_t bins, const image::ImageShape& shape);
// Whether the sign of the magnitude is chosen at random.
bool is_signed(PolicyOperator name);
// The operator with this magnitude; empty for the identity.
std::optional<image::Operation> operation_of(PolicyOperator name, double magnitude,
                                             const image::ImageShape& shape);

// Append the operators that are applied to one image.
void sample_policy(const config::RandAugment& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations);
void sample_policy(const config::TrivialAugmentWide& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations);
void sample_policy(const config::AutoAugment& policy, const image::ImageShape& shape,
                   CounterRng& rng, Operations& operations);
void sample_policy(const config::AugMix& policy, const image::ImageShape& shape, CounterRng& rng,
                   Operations& operations);

// The levels of a `fill` of one number, or of one per channel; empty: none.
image::Fill fill_of(const std::vector<double>& levels);
image::Interpolation interpolation_of(config::Interpolation interpolation);

}  // namespace stoker::data::transform
