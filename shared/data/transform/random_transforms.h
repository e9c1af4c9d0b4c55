// RandomTransforms: what is done to a picture at random after it was read: the transforms
// random_crop, random_horizontal_flip and color_jitter.
//
// In this order: padded with black pixels and cut back to its size at a random place; mirrored;
// brightness, contrast, saturation and hue changed in random order, by torchvision's rules.
//
// Threads: immutable after construction.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/image/image_types.h"

namespace stoker::data::transform {

class RandomTransforms {
 public:
  static Result<RandomTransforms> of(const DatasetRequest& request);

  bool none() const { return pad_ == 0 && flip_ == 0 && !has_jitter(); }
  std::string to_text() const;  // " pad=4 flip=0.5"; empty for none
  uint32_t pad() const { return pad_; }
  // Of random_crop, [height, width]: that of the pictures. Empty: there is none.
  const std::vector<int64_t>& size() const { return size_; }
  // What apply() draws, for people: "shift=-2,3", "flip", "brightness=1.21".
  std::vector<std::string> describe(const RandomKey& random_key) const;
  // In place; `planes` are shape.bytes() bytes, and the sides are larger than pad().
  void apply(const image::ImageShape& shape, const RandomKey& random_key,
             std::span<std::byte> planes) const;

 private:
  enum Step { kBrightness, kContrast, kSaturation, kHue, kSteps };

  struct Shift {
    int32_t down = 0;
    int32_t across = 0;
  };
  struct Jitter {
    std::array<Step, kSteps> order{kBrightness, kContrast, kSaturation, kHue};
    std::array<double, kSteps> amount{};
  };

  bool has_jitter() const;
  Shift sample_shift(const RandomKey& random_key) const;
  bool sample_flip(const RandomKey& random_key) const;
  Jitter sample_jitter(const RandomKey& random_key) const;

  std::vector<int64_t> size_;
  uint32_t pad_ = 0;
  double flip_ = 0;
  std::array<double, kSteps> strength_{};
};

// is_image(): whether a tensor of a sample is a picture: U8 [1 or 3 planes, height, width].
//
// Threads: a function of its argument.
inline bool is_image(const TensorSpec& spec) {
  return spec.dtype == DType::kU8 && spec.shape.size() == 3 &&
         (spec.shape[0] == 1 || spec.shape[0] == 3);
}

// with_transforms: a data set whose pictures are changed at random while they are read, whatever format
// they are of.
//
// Threads, blocking, errors: as the set itself.

// kInvalidArgument where a set without encoded pictures resizes them.
Status check_transforms(const DatasetRequest& request);

// The set itself where nothing is to be done to it. kInvalidArgument where it has transforms and its
// input is no picture, or one of another size than random_crop says.
Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset);

}  // namespace stoker::data::transform
