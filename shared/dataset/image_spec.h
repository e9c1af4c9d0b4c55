// is_image(): whether a tensor of a sample is a picture: U8 [1 or 3 planes, height, width].
//
// Threads: a function of its argument.
#pragma once

#include "shared/base/tensor_spec.h"

namespace stoker::dataset {

inline bool is_image(const TensorSpec& spec) {
  return spec.dtype == DType::kU8 && spec.shape.size() == 3 &&
         (spec.shape[0] == 1 || spec.shape[0] == 3);
}

}  // namespace stoker::dataset
