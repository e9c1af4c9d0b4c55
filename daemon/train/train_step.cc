#include "daemon/train/train_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
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

double max_loss_count(const config::TrainConfig& config, const model::Model& model,
                      const task::Task& task) {
  return static_cast<double>(config.gradient_accumulation_steps * config.micro_batch_size *
                             task.counts_per_sample(model));
}

TrainStep::TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
                     const config::TrainConfig& config, LossScale* maybe_scale,
                     int64_t own_micro_batches)
    : model_(model),
      task_(task),
      optimizer_(optimizer),
      maybe_scale_(maybe_scale),
      accumulate_(config.gradient_accumulation_steps),
      max_count_(max_loss_count(config, model, task)),
      autocast_(format_of(config.precision)),
      own_micro_batches_(own_micro_batches > 0 ? own_micro_batches : accumulate_),
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
    add_metrics(computed, is_first);
  }
  const PhaseScope backward(maybe_observer_, Phase::kBackward);
  at::Tensor loss = add_loss(std::move(computed.loss), is_first);
  if (maybe_scale_ != nullptr) loss = maybe_scale_->scaled(loss);
  loss.backward();
  optimizer_.note_reached();
  ++num_noted_;
}

const Optimizer::Reached& TrainStep::settle_reached() {
  // Graphs were replayed, or other micro-batches are those of other graphs.
  if (num_noted_ < own_micro_batches_ || optimizer_.reached().empty()) optimizer_.assume_reached();
  num_noted_ = own_micro_batches_;
  return optimizer_.reached();
}

at::Tensor TrainStep::add_loss(task::LossTerm term, bool is_first) {
  at::Tensor loss = std::move(term.mean);
  if (!loss_.defined()) loss_ = at::zeros({}, loss.options().dtype(at::kDouble));
  if (is_first) loss_.zero_();
  if (max_count_ > 0) accumulate(loss_count_, term.maybe_count, is_first);
  if (scales_by_count()) {
    const at::Tensor count = term.maybe_count.to(at::kDouble);
    const at::Tensor part = at::where(count.gt(0), count, at::ones_like(count)).div(max_count_);
    loss_.add_(loss.detach().mul(part));
    return loss * part.to(loss.scalar_type());
  }
  const at::Tensor value = loss.detach();
  // The sum of a step without values is no loss. What is not finite stays so.
  loss_.add_(max_count_ > 0 ? value.mul(term.maybe_count.gt(0)) : value,
             1.0 / static_cast<double>(accumulate_));
  return accumulate_ > 1 ? loss / static_cast<double>(accumulate_) : loss;
}

void TrainStep::scale_by_count() {
  if (!scales_by_count()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor factor =
      at::where(loss_count_.gt(0), loss_count_.reciprocal().mul(max_count_), at::zeros_like(loss_));
  loss_.mul_(factor);
  for (const at::Tensor& gradients : optimizer_.flat_gradients())
    gradients.mul_(factor.to(gradients.scalar_type()));
}

at::Tensor TrainStep::is_empty() const { return loss_count_.eq(0).to(at::kFloat); }

void TrainStep::add_metrics(const task::LossAndMetric& computed, bool is_first) {
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
  if (!sum.defined()) sum = at::zeros_like(value, at::kDouble);
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
  for (const at::Tensor& sums : {metric_sum_, maybe_device_count_}) {
    if (!sums.defined()) continue;
    const at::Tensor flat = sums.view({-1});
    for (int64_t i = 0; i < flat.size(0); ++i) scalars.push_back(flat.select(0, i));
  }
  if (scales_by_count() && !optimizer_.sums_own_gradients()) scalars.push_back(loss_count_);
  return scalars;
}

std::vector<at::Tensor> TrainStep::squares_to_sum() {
  if (!optimizer_.sums_own_gradients()) return {};
  return optimizer_.squares_to_sum();
}

at::Tensor TrainStep::finish() {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  settle_reached();
  if (!optimizer_.sums_own_gradients()) scale_by_count();
  at::Tensor norm;
  if (max_count_ == 0)
    norm = optimizer_.update();
  else if (optimizer_.has_device_lr())  // the host must not wait for the count
    norm = optimizer_.update_unless(is_empty());
  else
    norm = loss_count_.item<double>() == 0 ? optimizer_.skip() : optimizer_.update();
  drop();
  return norm;
}

at::Tensor TrainStep::finish_if_finite(bool and_loss, const at::Tensor& maybe_found_inf) {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  settle_reached();
  if (!optimizer_.sums_own_gradients()) scale_by_count();
  at::Tensor norm;
  at::Tensor found = maybe_found_inf;
  const auto add = [&found](const at::Tensor& other) {
    found = found.defined() ? at::maximum(found, other) : other;
  };
  if (max_count_ > 0) add(is_empty());
  if (maybe_scale_ != nullptr) {
    add(maybe_scale_->unscale(optimizer_.gradients()));
    if (and_loss) add(loss_.isfinite().logical_not());
    norm = optimizer_.update_unless(found);
    maybe_scale_->update();
  } else {
    norm = optimizer_.update_if_finite(loss_, found);
  }
  drop();
  return norm;
}

void TrainStep::drop() {
  optimizer_.zero_grad();
  num_noted_ = 0;
}

}  // namespace stoker::train
