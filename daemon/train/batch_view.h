// batch_view(): the tensors of a batch over the memory that holds it.
//
// Threads: a function of its arguments.
#pragma once

#include <cstddef>

#include <c10/core/Device.h>

#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::train {

// Views of `bytes`, which lie on `device` as `layout` says, and must stay there as long as the
// tensors.
task::Batch batch_view(const ring::BatchLayout& layout, const std::byte* bytes, c10::Device device);

}  // namespace stoker::train
