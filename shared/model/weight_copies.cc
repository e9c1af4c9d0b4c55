#include "shared/model/weight_copies.h"

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
  return UseCopy::apply(weight, maybe_current_copies->copy_of(weight));
}

const at::Tensor& WeightCopies::copy_of(const at::Tensor& weight) {
  const at::NoGradGuard no_grad;
  Copy& entry = copies_[weight.unsafeGetTensorImpl()];
  const auto version = static_cast<int64_t>(weight._version());
  const bool is_new = !entry.copy.defined();
  if (is_new) {
    entry.weight = weight;
    entry.copy = at::empty_like(weight, weight.options().dtype(at::kBFloat16));
  }
  if (is_new || entry.version != version) entry.copy.copy_(weight);
  entry.version = version;
  return entry.copy;
}

Bf16* WeightCopies::maybe_target(const at::Tensor& weight) {
  const auto found = copies_.find(weight.unsafeGetTensorImpl());
  if (found == copies_.end()) return nullptr;
  return reinterpret_cast<Bf16*>(found->second.copy.data_ptr());
}

void WeightCopies::set_written(const at::Tensor& weight) {
  const auto found = copies_.find(weight.unsafeGetTensorImpl());
  if (found != copies_.end()) found->second.version = static_cast<int64_t>(weight._version());
}

}  // namespace stoker::model
