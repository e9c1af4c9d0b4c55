#include "shared/model/weight_copies.h"

#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace stoker::model {
namespace {

thread_local WeightCopies* maybe_current_copies = nullptr;

// Passes the gradient of the copy to the weight, as a conversion does.
struct UseCopy : torch::autograd::Function<UseCopy> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& /*weight*/,
                            const at::Tensor& copy) {
    return copy.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0].to(at::kFloat), at::Tensor()};
  }
};

}  // namespace

WeightCopies::Scope::Scope(WeightCopies* maybe_copies) : previous_(maybe_current_copies) {
  maybe_current_copies = maybe_copies;
}

WeightCopies::Scope::~Scope() { maybe_current_copies = previous_; }

at::Tensor WeightCopies::or_weight(const at::Tensor& weight) {
  const c10::DeviceType device = weight.device().type();
  const bool has_use = maybe_current_copies != nullptr && weight.is_leaf() &&
                       weight.requires_grad() && weight.scalar_type() == at::kFloat &&
                       at::autocast::is_autocast_enabled(device) &&
                       at::autocast::get_autocast_dtype(device) == at::kBFloat16;
  if (!has_use) return weight;
  const at::Tensor* const maybe_copy = maybe_current_copies->maybe_copy_of(weight);
  return maybe_copy != nullptr ? UseCopy::apply(weight, *maybe_copy) : weight;
}

const at::Tensor* WeightCopies::maybe_copy_of(const at::Tensor& weight) {
  Copy& entry = copies_[weight.unsafeGetTensorImpl()];
  entry.weight = weight;
  const bool is_current =
      entry.copy.defined() && entry.version == static_cast<int64_t>(weight._version());
  return is_current ? &entry.copy : nullptr;
}

Bf16* WeightCopies::maybe_target(const at::Tensor& weight) {
  Copy& entry = copies_[weight.unsafeGetTensorImpl()];
  if (!std::exchange(entry.is_decided, true) && entry.weight.defined()) {
    entry.copy = at::empty_like(weight, weight.options().dtype(at::kBFloat16));
    convert(entry);  // the kernel writes nothing if it skips the update
  }
  if (entry.version != static_cast<int64_t>(weight._version())) entry.version = kOutdated;
  return entry.copy.defined() ? reinterpret_cast<Bf16*>(entry.copy.data_ptr()) : nullptr;
}

void WeightCopies::set_written(const at::Tensor& weight) {
  const auto found = copies_.find(weight.unsafeGetTensorImpl());
  // Else nothing has been written, if the kernel skipped the update.
  if (found != copies_.end() && found->second.version != kOutdated)
    found->second.version = static_cast<int64_t>(weight._version());
}

void WeightCopies::convert(Copy& entry) {
  if (!entry.copy.defined()) return;
  const at::NoGradGuard no_grad;
  entry.copy.copy_(entry.weight);
  entry.version = static_cast<int64_t>(entry.weight._version());
}

void WeightCopies::convert(const at::Tensor& weight) {
  const auto found = copies_.find(weight.unsafeGetTensorImpl());
  if (found != copies_.end()) convert(found->second);
}

void WeightCopies::convert_all() {
  for (auto& [identity, entry] : copies_) convert(entry);
}

}  // namespace stoker::model
