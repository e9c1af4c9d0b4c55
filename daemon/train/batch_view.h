// batch_view(): creates the tensors of a batch as views of the memory that holds it.
//
// Threads: pure functions.
#pragma once

#include <cstddef>

#include <c10/core/Device.h>

#include "shared/feed/batch_receiver.h"
#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::train {

// Views of a batch in host memory, which must outlive the tensors.
task::Batch batch_view(const feed::ReceivedBatch& batch);

// Views of `bytes`, which are on `device` in the given layout and must outlive the tensors.
task::Batch batch_view(const ring::BatchLayout& layout, const std::byte* bytes, c10::Device device);

}  // namespace stoker::train
