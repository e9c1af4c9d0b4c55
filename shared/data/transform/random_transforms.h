// RandomTransforms: the random transforms that are applied to a decoded image: random_crop,
// random_horizontal_flip and color_jitter.
//
// Order: padding with black pixels and cropping to the original size at a random position; flip;
// brightness, contrast, saturation and hue in random order. The arithmetic is torchvision's.
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
  std::string to_text() const;  // " padding=4 flip=0.5"; empty for none
  uint32_t pad() const { return pad_; }
  bool flips() const { return flip_ > 0; }
  // random_crop.size, [height, width], which must be that of the images. Empty without random_crop.
  const std::vector<int64_t>& size() const { return size_; }
  // The random parameters that apply() uses, for display: "shift=-2,3", "flip", "brightness=1.21".
  std::vector<std::string> describe(const RandomKey& random_key) const;
  // In place. `planes` has shape.bytes() bytes; both sides of the image must be larger than pad().
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

// is_image(): whether a tensor of a sample is an image: U8 [1 or 3 channels, height, width].
//
// Threads: a pure function.
inline bool is_image(const TensorSpec& spec) {
  return spec.dtype == DType::kU8 && spec.shape.size() == 3 &&
         (spec.shape[0] == 1 || spec.shape[0] == 3);
}

// with_transforms: applies the random transforms to the images of a dataset of any format while
// they are read.
//
// Threads, blocking, errors: as the dataset.

// kInvalidArgument if a dataset without encoded images has a resizing transform.
Status check_transforms(const DatasetRequest& request);

// A target that is an image, such as a mask, would no longer match an input that a random crop or flip
// moves. check_target(): kInvalidArgument if a row of the target, of this shape, has both sides of the
// image [channels, height, width]. warn_about_target(): for targets without a shape; whether they are
// an image or, for instance, an embedding is not known. Errors: those of RandomTransforms::of().
Status check_target(const DatasetRequest& request, std::span<const uint64_t> shape,
                    const std::vector<int64_t>& image);
Status warn_about_target(const DatasetRequest& request, const std::vector<TensorSpec>& sample);

// Returns `dataset` itself if there are no random transforms. kInvalidArgument if it has transforms
// and its input is not an image, or the image size differs from random_crop.size.
Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset);

}  // namespace stoker::data::transform
