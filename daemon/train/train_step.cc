#include "daemon/train/train_step.h"

#include <utility>
#include <vector>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/autocast.h"
#include "shared/model/fused_kernels.h"
#include "shared/model/weight_copies.h"

namespace stoker::train {
namespace {

std::optional<at::ScalarType> format_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::kBf16:
      return at::kBFloat16;
    case config::Precision::kFp16:
      return at::kHalf;
    case config::Precision::kFp32:
    case config::Precision::kTf32:  // process-wide setting, see numerics.h
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

TrainStep::TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
                     const config::TrainConfig& config, LossScale* maybe_scale,
                     int64_t own_micro_batches)
    : model_(model),
      task_(task),
      optimizer_(optimizer),
      maybe_scale_(maybe_scale),
      accumulate_(config.gradient_accumulation_steps),
      autocast_(format_of(config.precision)),
      gradient_tree_(own_micro_batches > 0 ? own_micro_batches : accumulate_),
      scalar_tree_(own_micro_batches > 0 ? own_micro_batches : accumulate_) {
  // Not with several micro-batches: a captured one adds to gradients at fixed addresses, and each graph of the first
  // micro-batch (one per buffer and shape) would allocate others.
  if (accumulate_ == 1) optimizer_.take_gradients();
}

void TrainStep::add(const task::Batch& batch, bool is_first) {
  // A capture that failed before drop() has left gradients that were never computed.
  if (accumulate_ == 1) drop();
  task::LossAndMetric computed;
  {
    const PhaseScope forward(maybe_observer_, Phase::kForward);
    const c10::Device device = batch.front().device();
    const model::Autocast autocast(autocast_, device.type());
    const bool has_copies = model::fused_kernels(device).adamw != nullptr;
    const model::WeightCopies::Scope copies(has_copies ? &optimizer_.weight_copies() : nullptr);
    computed = task_.loss_and_metric(model_, batch);
    add_metric(computed, is_first);
  }
  at::Tensor loss = std::move(computed.loss);
  const PhaseScope backward(maybe_observer_, Phase::kBackward);
  if (!loss_.defined()) loss_ = at::zeros({}, loss.options().dtype(at::kDouble));
  if (is_first) loss_.zero_();
  loss_.add_(loss.detach(), 1.0 / static_cast<double>(accumulate_));
  if (accumulate_ > 1) loss = loss / static_cast<double>(accumulate_);
  if (maybe_scale_ != nullptr) loss = maybe_scale_->scaled(loss);
  loss.backward();
}

void TrainStep::add_metric(const task::LossAndMetric& computed, bool is_first) {
  if (!computed.metric_sum.defined()) return;
  accumulate(metric_sum_, computed.metric_sum, is_first);
  if (computed.maybe_device_count.defined())
    accumulate(maybe_device_count_, computed.maybe_device_count, is_first);
  // Not added up here: the other micro-batches of this step can be replayed graphs.
  metric_count_ = computed.metric_count * accumulate_;
}

void TrainStep::accumulate(at::Tensor& sum, const at::Tensor& value, bool is_first) const {
  if (accumulate_ == 1) {
    sum = value;  // which is read before the next step
    return;
  }
  if (!sum.defined()) sum = at::zeros({}, value.options().dtype(at::kDouble));
  if (is_first)
    sum.copy_(value);
  else
    sum.add_(value);
}

void TrainStep::add_to_tree(int level, bool is_last) {
  gradient_tree_.add(optimizer_.flat_gradients(), level, is_last);
  scalar_tree_.add(scalars_to_sum(), level, is_last);
}

std::vector<at::Tensor> TrainStep::scalars_to_sum() const {
  std::vector<at::Tensor> scalars{loss_};
  for (const at::Tensor& sum : {metric_sum_, maybe_device_count_})
    if (sum.defined()) scalars.push_back(sum);
  return scalars;
}

std::vector<at::Tensor> TrainStep::squares_to_sum() {
  if (!optimizer_.sums_own_gradients()) return {};
  return optimizer_.squares_to_sum();
}

at::Tensor TrainStep::finish() {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  at::Tensor norm = optimizer_.update();
  drop();
  return norm;
}

at::Tensor TrainStep::finish_if_finite(bool and_loss) {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  at::Tensor norm;
  if (maybe_scale_ != nullptr) {
    at::Tensor found = maybe_scale_->unscale(optimizer_.gradients());
    if (and_loss) found = at::maximum(found, loss_.isfinite().logical_not());
    norm = optimizer_.update_unless(found);
    maybe_scale_->update();
  } else {
    norm = optimizer_.update_if_finite(loss_);
  }
  drop();
  return norm;
}

void TrainStep::drop() { optimizer_.zero_grad(); }

}  // namespace stoker::train
