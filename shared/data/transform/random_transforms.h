// RandomTransforms: the random transforms that are applied to a decoded image, in the order of the
// list. The arithmetic is torchvision's.
//
// Threads: immutable after construction.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/transform/sample_operations.h"
#include "shared/image/image_types.h"

namespace stoker::data::transform {

class RandomTransforms {
 public:
  static Result<RandomTransforms> of(const DatasetRequest& request);
  // The same for samples of these tensors. kInvalidArgument also if there are transforms and the first
  // tensor is not an image, or one that a transform cannot be applied to.
  static Result<RandomTransforms> of(const DatasetRequest& request,
                                     const std::vector<TensorSpec>& sample);

  bool none() const { return transforms_.empty(); }
  std::string to_text() const;  // " padding=4 flip=0.5"; empty for none
  // The name of a transform that moves pixels; empty if none does.
  std::string_view moving() const;
  // The operators of one sample for display: "shift=-2,3", "flip", "brightness=1.210".
  std::vector<std::string> describe(const RandomKey& random_key) const;
  // In place, to the tensors of one sample of of(). A mask moves with its image; its pixels from
  // outside become kIgnoredClass.
  void apply(const RandomKey& random_key, std::span<const std::span<std::byte>> sample) const;

 private:
  void sample_all(const RandomKey& random_key, Operations& operations) const;

  config::Transforms transforms_;  // those that can change an image
  image::ImageShape shape_;        // of the first tensor
  bool has_mask_ = false;          // the second tensor
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

// A target that is an image would no longer match an input that a random transform moves.
// check_target(): kInvalidArgument if a row of the target, of this shape, has both sides of the image
// [channels, height, width]. warn_about_target(): for targets without a shape; whether they are
// an image or, for instance, an embedding is not known. Errors: those of RandomTransforms::of().
Status check_target(const DatasetRequest& request, std::span<const uint64_t> shape,
                    const std::vector<int64_t>& image);
Status warn_about_target(const DatasetRequest& request, const std::vector<TensorSpec>& sample);

// Returns `dataset` itself if there are no random transforms. Errors: those of RandomTransforms::of().
Result<std::unique_ptr<Dataset>> with_transforms(const DatasetRequest& request,
                                                 std::unique_ptr<Dataset> dataset);

}  // namespace stoker::data::transform
