// sample_operations: the random choices of one transform for one sample, as operators with their
// numbers. What is applied, described and, with a mask, applied to it too, is the same list.
//
// Threads: pure functions.
#pragma once

#include "shared/config/dataset_config.h"
#include "shared/data/counter_rng.h"
#include "shared/data/transform/augment_policies.h"
#include "shared/image/image_types.h"

namespace stoker::data::transform {

// Whether the transform, other than resizing and normalize, can change an image.
bool is_active(const config::Transform& transform);

// Appends the operators of an active transform. Each kind of transform has its own random numbers.
void sample_operations(const config::Transform& transform, const image::ImageShape& shape,
                       const RandomKey& random_key, Operations& operations);

}  // namespace stoker::data::transform
