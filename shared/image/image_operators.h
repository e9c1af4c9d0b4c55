// image_operators: the operators of augmentation on decoded 8-bit images, in one table: their names in
// messages, their numbers, and whether they move pixels. The random transforms and the policies
// (RandAugment and others) choose operators and numbers; nothing here is random.
//
// They compute what torchvision.transforms.v2.functional computes for uint8 tensors with the same
// numbers: exact where a table of levels or the nearest pixel is used, otherwise within one level.
//
// Threads:  pure functions; each thread keeps its scratch memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shared/image/grid_transforms.h"
#include "shared/image/image_types.h"

namespace stoker::image {

enum class Operator : uint8_t {
  kShift,  // down, right; see shift_with_fill()
  kHorizontalFlip,
  kVerticalFlip,
  kBrightness,  // factor
  kContrast,    // factor
  kSaturation,  // factor
  kHue,         // turn
  kSharpness,   // factor
  kGrayscale,
  kInvert,
  kPosterize,  // bits
  kSolarize,   // threshold, 0 to 255
  kAutocontrast,
  kEqualize,
  kGaussianBlur,  // kernel size, sigma
  kErase,         // top, left, height, width; `fill`: the levels
  kAffine,        // the members of AffineParameters
  kPerspective,   // PerspectiveCoefficients
  // A weighted sum of an image and of results of operators on it (AugMix): kMixBegin, and for each of
  // the results its operators and kMixAdd, then kMixEnd.
  kMixBegin,  // weight of the image
  kMixAdd,    // weight of the result
  kMixEnd,
};

struct Operation {
  Operator name = Operator::kShift;
  std::array<double, 8> numbers{};  // in the order given above; the rest is not used
  Interpolation interpolation = Interpolation::kNearest;  // kAffine, kPerspective
  Fill fill = {};                                         // kAffine, kPerspective, kErase
};

// In place; `planes` has shape.bytes() bytes. From kMixBegin to kMixEnd the thread holds the sum.
void apply(const Operation& operation, const ImageShape& shape, std::span<std::byte> planes);

// Whether pixels change their place, so that a mask has to move with them.
bool moves_pixels(Operator name);

// "shift=-2,3", "flip", "brightness=1.210".
std::string to_text(const Operation& operation);

}  // namespace stoker::image
