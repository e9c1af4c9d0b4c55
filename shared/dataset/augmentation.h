// Augmentation: what is done to a picture at random after it was read: the transforms
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
#include <span>
#include <string>
#include <vector>

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
  // Of random_crop, [height, width]: that of the pictures. Empty: there is none.
  const std::vector<int64_t>& size() const { return size_; }
  // What apply() draws, for people: "shift=-2,3", "flip", "brightness=1.21".
  std::vector<std::string> describe(const DrawKey& draw) const;
  // In place; `planes` are shape.bytes() bytes, and the sides are larger than pad().
  void apply(const image::PictureShape& shape, const DrawKey& draw,
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

  bool jitters() const;
  Shift draw_shift(const DrawKey& draw) const;
  bool draw_flip(const DrawKey& draw) const;
  Jitter draw_jitter(const DrawKey& draw) const;

  std::vector<int64_t> size_;
  uint32_t pad_ = 0;
  double flip_ = 0;
  std::array<double, kSteps> strength_{};
};

}  // namespace stoker::dataset
