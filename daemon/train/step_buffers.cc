#include "daemon/train/step_buffers.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

namespace stoker::train {

StepBuffers::StepBuffers(const model::Model& model) {
  for (const auto& [name, buffer] : model.named_buffers().pairs()) {
    if (!buffer.defined() || buffer.numel() == 0) continue;
    auto part = std::ranges::find_if(parts_, [&buffer = buffer](const Part& each) {
      return each.buffers.front().scalar_type() == buffer.scalar_type();
    });
    if (part == parts_.end()) part = parts_.emplace(parts_.end());
    part->buffers.push_back(buffer.detach());
    // The ranks of a group have the same contents of contiguous ones only, see shared_buffers().
    if (buffer.is_floating_point() && buffer.is_contiguous() &&
        buffer.isfinite().all().item<bool>())
      finite_.emplace_back(name, buffer.detach());
  }
}

at::Tensor StepBuffers::flatten(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : tensors) rows.push_back(tensor.reshape({-1}));
  return at::cat(rows);
}

std::vector<at::Tensor> StepBuffers::views(const at::Tensor& flat,
                                           const std::vector<at::Tensor>& like) {
  std::vector<at::Tensor> views;
  int64_t offset = 0;
  for (const at::Tensor& tensor : like) {
    views.push_back(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return views;
}

void StepBuffers::keep_copies() {
  const at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    part.flat = flatten(part.buffers);
    part.copies = views(part.flat, part.buffers);
  }
}

void StepBuffers::copy() {
  const at::NoGradGuard no_grad;
  for (const Part& part : parts_)
    if (part.flat.defined()) at::_foreach_copy_(part.copies, part.buffers);
}

void StepBuffers::restore() {
  const at::NoGradGuard no_grad;
  for (const Part& part : parts_)
    if (part.flat.defined()) at::_foreach_copy_(part.buffers, part.copies);
}

void StepBuffers::restore_if(const at::Tensor& is_undone) {
  const at::NoGradGuard no_grad;
  const at::Tensor condition = is_undone.to(at::kBool);
  for (const Part& part : parts_)
    if (part.flat.defined())
      at::_foreach_copy_(part.buffers, views(at::where(condition, part.flat, flatten(part.buffers)),
                                             part.buffers));
}

void StepBuffers::swap() {
  const at::NoGradGuard no_grad;
  for (const Part& part : parts_) {
    if (!part.flat.defined()) continue;
    const at::Tensor now = flatten(part.buffers);
    at::_foreach_copy_(part.buffers, part.copies);
    at::Tensor(part.flat).copy_(now);
  }
}

at::Tensor StepBuffers::found_nonfinite() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const auto& [name, buffer] : finite_) values.push_back(buffer);
  // 0 times a value is 0, or NaN if the value is not finite. The tensors can have several dtypes.
  return flatten(values).mul(0).sum().ne(0).to(at::kFloat);
}

}  // namespace stoker::train
