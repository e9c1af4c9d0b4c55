// Augmentation: what is done to a picture at random after it was read: the settings `pad`, `flip`
// and `jitter`.
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
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/kind.h"
#include "shared/image/picture.h"

namespace stoker::dataset {

class Augmentation {
 public:
  static Result<Augmentation> of(const SetRequest& set);

  bool none() const { return pad_ == 0 && flip_ == 0 && !jitters(); }
  std::string to_text() const;  // " pad=4 flip=0.5"; empty for none
  uint32_t pad() const { return pad_; }
  // In place; `planes` are shape.bytes() bytes, and the sides are larger than pad().
  void apply(const image::PictureShape& shape, const DrawKey& draw,
             std::span<std::byte> planes) const;

 private:
  enum Step { kBrightness, kContrast, kSaturation, kHue, kSteps };

  bool jitters() const;
  void shift(const image::PictureShape& shape, const DrawKey& draw,
             std::span<std::byte> planes) const;
  void jitter(const image::PictureShape& shape, const DrawKey& draw,
              std::span<std::byte> planes) const;

  uint32_t pad_ = 0;
  double flip_ = 0;
  std::array<double, kSteps> strength_{};
};

}  // namespace stoker::dataset
