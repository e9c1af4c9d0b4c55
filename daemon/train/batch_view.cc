#include "daemon/train/batch_view.h"

#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

// `address(i)`: of tensor i of the layout.
template <typename Address>
task::Batch views_of(const ring::BatchLayout& layout, c10::Device device, Address address) {
  task::Batch batch;
  batch.reserve(layout.sample().size());
  for (size_t i = 0; i < layout.sample().size(); ++i) {
    const TensorSpec& spec = layout.sample()[i];
    std::vector<int64_t> shape{static_cast<int64_t>(layout.batch())};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    // from_blob() takes a mutable pointer; nothing writes to a batch.
    void* const tensor = const_cast<std::byte*>(address(i));
    batch.push_back(
        at::from_blob(tensor, shape,
                      at::TensorOptions().dtype(model::to_scalar_type(spec.dtype)).device(device)));
  }
  return batch;
}

}  // namespace

task::Batch batch_view(const feed::ReceivedBatch& batch) {
  return views_of(batch.layout, c10::Device(c10::kCPU),
                  [&](size_t i) { return batch.tensors[i].data(); });
}

task::Batch batch_view(const ring::BatchLayout& layout, const std::byte* bytes,
                       c10::Device device) {
  return views_of(layout, device, [&](size_t i) { return bytes + layout.offset(i); });
}

}  // namespace stoker::train
