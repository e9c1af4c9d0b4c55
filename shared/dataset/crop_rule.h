// CropRule: which part of a picture a sample is made of: the settings `fit` and `crop_…`.
//
// Threads: immutable after construction.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/kind.h"
#include "shared/image/picture.h"

namespace stoker::dataset {

class CropRule {
 public:
  static Result<CropRule> of(const SetRequest& set);

  bool takes_all() const { return fit_ == Fit::kStretch; }
  bool draws() const { return fit_ == Fit::kRandom; }
  std::string to_text() const;  // " fit=center_crop crop_part=0.875"; empty where it takes all
  // The part of a picture of `height` x `width` pixels that becomes one of `shape`.
  image::Box box(uint32_t height, uint32_t width, const image::PictureShape& shape,
                 const DrawKey& draw) const;

 private:
  enum class Fit { kStretch, kCenter, kRandom };
  struct Interval {
    double from = 0;
    double to = 0;
  };

  image::Box center_box(uint32_t height, uint32_t width, const image::PictureShape& shape) const;
  image::Box random_box(uint32_t height, uint32_t width, const DrawKey& draw) const;
  // Where no random one fits: the largest in the middle whose ratio is allowed.
  image::Box widest_box(uint32_t height, uint32_t width) const;

  Fit fit_ = Fit::kStretch;
  double part_ = 1;  // kCenter: of the shorter side
  Interval area_;    // kRandom: of the picture's
  Interval ratio_;   // kRandom: width / height
};

}  // namespace stoker::dataset
