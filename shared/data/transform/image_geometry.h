// CropResize: the region of an encoded image that becomes a sample, and the size of the sample: the
// transforms resize, center_crop and random_resized_crop. The region is resized once, whatever the
// number of transforms.
//
// Threads: immutable after construction.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/image/image_types.h"

namespace stoker::data::transform {

class CropResize {
 public:
  static Result<CropResize> of(const DatasetRequest& request);

  // Size of the sample, in pixels.
  uint32_t height() const { return size_.height; }
  uint32_t width() const { return size_.width; }
  bool uses_full_image() const { return fit_ == Fit::kStretch; }
  image::Interpolation interpolation() const { return interpolation_; }
  bool is_random() const { return fit_ == Fit::kRandom; }
  std::string to_text() const;  // "size=224x224 center_crop from whole pixels of 256"
  // The region of an image of `height` x `width` pixels that becomes the sample.
  image::CropBox box(uint32_t height, uint32_t width, const RandomKey& random_key) const;

 private:
  enum class Fit { kStretch, kCenter, kRandom };
  struct Size {
    uint32_t height = 0;
    uint32_t width = 0;
  };
  struct Interval {
    double from = 0;
    double to = 0;
  };

  // `name`: the transform, for messages. A single number means a square.
  static Result<Size> size_of(const DatasetRequest& request, std::string_view name,
                              const std::vector<int64_t>& given);
  Status take_center(const DatasetRequest& request, const config::Resize& resize,
                     const config::CenterCrop& crop);
  Status take_random(const DatasetRequest& request, const config::RandomResizedCrop& crop);
  image::CropBox center_box(uint32_t height, uint32_t width) const;
  image::CropBox random_box(uint32_t height, uint32_t width, const RandomKey& random_key) const;
  // Used if no random region fits: the largest centered one with an allowed ratio.
  image::CropBox max_box(uint32_t height, uint32_t width) const;

  std::string size_to_text() const;

  Fit fit_ = Fit::kStretch;
  image::Interpolation interpolation_ = image::Interpolation::kBilinear;
  Size size_;
  Size resized_;                       // kCenter: size of the resized image before cropping
  bool resizes_shorter_side_ = false;  // kCenter: to resized_.height
  Interval area_;                      // kRandom: fraction of the area of the image
  Interval ratio_;                     // kRandom: width / height
};

// Whether the images of a dataset are encoded files, as opposed to arrays of pixels.
bool has_encoded_images(const config::DatasetConfig& config);
bool has_random_resized_crop(const config::DatasetConfig& config);

}  // namespace stoker::data::transform
