#include "daemon/train/nonfinite_guard.h"

#include <cmath>

#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

constexpr const char* kHints = "try a smaller optimizer.lr or train.max_grad_norm";
// If gradients overflow even at this scale, they would not be finite in any format.
constexpr double kMinScale = 1e-4;

void add_unless(const at::Tensor& is_excluded, const at::Tensor& sum, const at::Tensor& value) {
  sum.add_(at::where(is_excluded, at::zeros_like(value), value));
}

}  // namespace

NonfiniteGuard::NonfiniteGuard(const config::TrainConfig& config, TrainingState& state)
    : config_(config),
      state_(state),
      skips_(config.on_nonfinite == config::OnNonfinite::kSkipStep),
      grad_norm_(at::zeros_like(state.loss_sum, at::kFloat)) {
  if (!skips_ && state.loss_scale() == nullptr) return;
  skipped_ = at::zeros_like(state.loss_sum);
  consecutive_ = at::full_like(state.loss_sum, static_cast<double>(state.consecutive_nonfinite));
}

void NonfiniteGuard::finish(TrainStep& step) {
  if (!counts()) {
    grad_norm_.copy_(step.finish());
    state_.loss_sum.add_(step.loss());
    add_metric(step);
    return;
  }
  const at::Tensor norm = step.finish_if_finite(/*and_loss=*/skips_);
  const at::Tensor& loss = step.loss();
  const at::Tensor& skipped = state_.optimizer().skipped();
  const at::Tensor is_skipped = skipped.to(at::kBool);
  grad_norm_.copy_(at::where(is_skipped, grad_norm_, norm));
  // In fp16 a nonfinite loss is not a gradient overflow, so it stays in the sum for evaluate().
  const at::Tensor is_excluded = skips_ ? is_skipped : is_skipped.logical_and(loss.isfinite());
  add_unless(is_excluded, state_.loss_sum, loss);
  add_metric_unless(is_excluded, step);
  skipped_.add_(skipped);
  // In fp16 an overflow is normal, so only a nonfinite loss counts toward the consecutive steps.
  const at::Tensor is_nonfinite =
      state_.loss_scale() == nullptr ? skipped : loss.isfinite().logical_not();
  consecutive_.add_(is_nonfinite).mul_(is_nonfinite);
}

void NonfiniteGuard::add_metric(const TrainStep& step) {
  if (!step.metric_sum().defined()) return;
  state_.metric_sum.add_(step.metric_sum());
  if (step.maybe_device_count().defined())
    state_.metric_count.add_(step.maybe_device_count());
  else
    state_.metric_count.add_(step.metric_count());
}

void NonfiniteGuard::add_metric_unless(const at::Tensor& is_excluded, const TrainStep& step) {
  if (!step.metric_sum().defined()) return;
  add_unless(is_excluded, state_.metric_sum, step.metric_sum());
  if (step.maybe_device_count().defined())
    add_unless(is_excluded, state_.metric_count, step.maybe_device_count());
  else
    state_.metric_count.add_(is_excluded.logical_not(), step.metric_count());
}

std::vector<at::Tensor> NonfiniteGuard::values() const {
  std::vector<at::Tensor> values{state_.loss_sum, grad_norm_};
  if (counts()) values.insert(values.end(), {skipped_, consecutive_});
  if (const LossScale* const scale = state_.loss_scale()) values.push_back(scale->factor());
  if (state_.metric_sum.defined())
    values.insert(values.end(), {state_.metric_sum, state_.metric_count});
  return values;
}

void NonfiniteGuard::reset_counts() {
  if (counts()) skipped_.zero_();
}

Result<NonfiniteGuard::NonfiniteReport> NonfiniteGuard::evaluate(std::span<const double> values,
                                                                 uint64_t step) {
  NonfiniteReport found{.loss_sum = values[0], .grad_norm = values[1]};
  if (state_.metric_sum.defined()) {
    found.metric_sum = values[values.size() - 2];
    found.metric_count = values[values.size() - 1];
  }
  if (counts()) {
    found.skipped = static_cast<int64_t>(values[2]);
    if (state_.loss_scale() != nullptr) found.maybe_loss_scale = values[4];
    STOKER_RETURN_IF_ERROR(check_skipped(found, static_cast<int64_t>(values[3]), step));
  }
  if (skips_ || (std::isfinite(found.loss_sum) && std::isfinite(found.grad_norm))) return found;
  if (config_.on_nonfinite == config::OnNonfinite::kFail) return failure(step, "");
  if (state_.rollbacks >= static_cast<uint64_t>(config_.max_nonfinite))
    return failure(step, " after " + std::to_string(state_.rollbacks) + " rollbacks");
  found.action = NonfiniteAction::kRollBack;
  return found;
}

Status NonfiniteGuard::check_skipped(const NonfiniteReport& found, int64_t consecutive,
                                     uint64_t step) {
  if (skips_) state_.consecutive_nonfinite = static_cast<uint64_t>(consecutive);
  if (found.skipped == 0) return {};
  state_.skipped_steps += static_cast<uint64_t>(found.skipped);
  if (!found.maybe_loss_scale) {
    log_warn("steps skipped", {{"step", step},
                               {"count", found.skipped},
                               {"total", state_.skipped_steps},
                               {"reason", "loss or gradient not finite"}});
  } else {
    log_info("steps skipped", {{"step", step},
                               {"count", found.skipped},
                               {"total", state_.skipped_steps},
                               {"loss_scale", *found.maybe_loss_scale},
                               {"reason", "a gradient overflowed in fp16"}});
    if (*found.maybe_loss_scale < kMinScale)
      return failure(step, ", even at the minimum loss scale");
  }
  if (skips_ && consecutive >= config_.max_nonfinite)
    return failure(step, " (" + std::to_string(consecutive) + " consecutive steps)");
  return {};
}

Status NonfiniteGuard::failure(uint64_t step, const std::string& what) const {
  return Status(StatusCode::kCorrupt, "loss or gradient is not finite at step " +
                                          std::to_string(step) + what +
                                          "; this state is not saved; " + kHints);
}

}  // namespace stoker::train
