#include "daemon/train/nonfinite_guard.h"

#include <cmath>
#include <utility>

#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

constexpr const char* kLossOrGradient = "loss or gradient";
// With skip_step it is not known which one.
constexpr const char* kAnyOfStep = "loss, gradient or buffer";
constexpr double kSkipped = -1;  // in place of a gradient norm
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
  if (max_loss_count(config, state.model(), state.task()) > 0)
    empty_ = at::zeros_like(state.loss_sum);
  if (!skips_ && !state.buffers().finite().empty()) found_buffers_ = at::zeros_like(grad_norm_);
  if (!skips_ && state.loss_scale() == nullptr) return;
  skipped_ = at::zeros_like(state.loss_sum);
  consecutive_ = at::full_like(state.loss_sum, static_cast<double>(state.consecutive_nonfinite));
}

void NonfiniteGuard::finish(TrainStep& step) {
  at::Tensor maybe_found_inf;
  if (skips_ && !state_.buffers().finite().empty())
    maybe_found_inf = state_.buffers().found_nonfinite();
  // Without the overflows, which are added to the other.
  const at::Tensor maybe_found_buffers = maybe_found_inf.defined() && state_.loss_scale() != nullptr
                                             ? maybe_found_inf.to(at::kBool, false, /*copy=*/true)
                                             : at::Tensor();
  at::Tensor norm =
      counts() ? step.finish_if_finite(/*and_loss=*/skips_, maybe_found_inf) : step.finish();
  const at::Tensor& maybe_skipped = state_.optimizer().skipped();
  if (maybe_skipped.defined()) norm = norm.masked_fill(maybe_skipped.to(at::kBool), kSkipped);
  grad_norm_.copy_(norm);
  if (!counts()) {
    state_.loss_sum.add_(step.loss());
    add_metrics(step);
    if (empty_.defined()) empty_.add_(step.maybe_loss_count().eq(0));
    return;
  }
  const at::Tensor& loss = step.loss();
  at::Tensor skipped = maybe_skipped;
  if (empty_.defined()) {
    const at::Tensor is_empty = step.maybe_loss_count().eq(0);
    empty_.add_(is_empty);
    skipped = skipped.masked_fill(is_empty, 0);  // not because a value is not finite
  }
  const at::Tensor is_skipped = skipped.to(at::kBool);
  // In fp16 a nonfinite loss is not a gradient overflow, so it stays in the sum for evaluate().
  const at::Tensor is_excluded = skips_ ? is_skipped : is_skipped.logical_and(loss.isfinite());
  add_unless(is_excluded, state_.loss_sum, loss);
  add_metrics_unless(is_excluded, step);
  skipped_.add_(skipped);
  // In fp16 an overflow is normal, so only a nonfinite loss or buffer counts toward the consecutive steps.
  at::Tensor is_nonfinite =
      state_.loss_scale() == nullptr ? skipped : loss.isfinite().logical_not();
  if (maybe_found_buffers.defined()) is_nonfinite = is_nonfinite.logical_or(maybe_found_buffers);
  consecutive_.add_(is_nonfinite).mul_(is_nonfinite);
}

void NonfiniteGuard::add_metrics(const TrainStep& step) {
  if (!step.metric_sum().defined()) return;
  state_.metric_sum.add_(step.metric_sum());
  if (step.maybe_device_count().defined())
    state_.metric_count.add_(step.maybe_device_count());
  else
    state_.metric_count.add_(step.metric_count());
}

void NonfiniteGuard::add_metrics_unless(const at::Tensor& is_excluded, const TrainStep& step) {
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
  if (found_buffers_.defined()) values.push_back(found_buffers_);
  if (empty_.defined()) values.push_back(empty_);
  if (state_.metric_sum.defined())
    for (const at::Tensor& each : {state_.metric_sum, state_.metric_count})
      for (int64_t i = 0; i < each.size(0); ++i) values.push_back(each.select(0, i));
  return values;
}

void NonfiniteGuard::check_buffers() {
  if (found_buffers_.defined()) found_buffers_.copy_(state_.buffers().found_nonfinite());
}

void NonfiniteGuard::reset_counts() {
  if (counts()) skipped_.zero_();
  if (empty_.defined()) empty_.zero_();
}

void NonfiniteGuard::read(StepEngine& engine, OnFinite on_finite) {
  const bool ends_interval = static_cast<bool>(on_finite);
  engine.submit([this] { check_buffers(); });
  engine.read(values(), [this, on_finite = std::move(on_finite), step = state_.step,
                         loss_steps = state_.loss_steps](auto values) {
    auto found = evaluate(values, step);
    if (!may_continue()) return;
    if (!found.ok()) {
      action_ = found.status();
    } else if (found->action != NonfiniteAction::kContinue) {
      action_ = found->action;
    } else if (on_finite) {
      found->steps = loss_steps - found->skipped - found->empty;
      on_finite(*found);
    } else {
      state_.loss_steps -= found->skipped + found->empty;
    }
  });
  engine.submit([this, ends_interval] {
    reset_counts();
    if (ends_interval) state_.reset_interval();
  });
  if (ends_interval) state_.loss_steps = 0;
}

Status NonfiniteGuard::error() const {
  if (!action_.ok()) return action_.status();
  return nonfinite_error("loss, gradient or state", state_.step);
}

Result<NonfiniteAction> NonfiniteGuard::check_state(StepEngine& engine, Coordination& ranks,
                                                    Checked checked) {
  engine.synchronize();
  if (!may_continue()) return action_;
  std::string found = state_.first_nonfinite();
  if (checked == Checked::kByAllRanks) {
    STOKER_ASSIGN_OR_RETURN(found, ranks.first_nonfinite(std::move(found)));
  }
  const Result<NonfiniteAction> action = found.empty()
                                             ? Result<NonfiniteAction>(NonfiniteAction::kContinue)
                                             : action_for(found, state_.step);
  if (checked == Checked::kByAllRanks)
    action_ = action;
  else if (action.ok() && *action == NonfiniteAction::kRollBack)
    return action_ = nonfinite_error(found, state_.step);
  return action;
}

Result<NonfiniteReport> NonfiniteGuard::evaluate(std::span<const double> values, uint64_t step) {
  size_t next = 0;  // in the order of values()
  NonfiniteReport found{.loss_sum = values[next++], .grad_norm = values[next++]};
  int64_t consecutive = 0;
  if (counts()) {
    found.skipped = static_cast<int64_t>(values[next++]);
    consecutive = static_cast<int64_t>(values[next++]);
  }
  if (state_.loss_scale() != nullptr) found.maybe_loss_scale = values[next++];
  const bool has_finite_buffers = !found_buffers_.defined() || values[next++] == 0;
  if (empty_.defined()) found.empty = static_cast<int64_t>(values[next++]);
  const auto metrics = values.subspan(next);  // sums, then counts
  for (size_t i = 0; i < metrics.size() / 2; ++i)
    found.metrics.push_back(metrics[i] / metrics[metrics.size() / 2 + i]);
  if (found.empty > 0)
    log_warn("steps skipped", {{"step", step}, {"count", found.empty}, {"reason", kNoLossValues}});
  if (counts()) {
    STOKER_RETURN_IF_ERROR(check_skipped(found, consecutive, step));
    found.maybe_skipped_steps = state_.skipped_steps;
  }
  const bool is_finite = std::isfinite(found.loss_sum) && std::isfinite(found.grad_norm);
  if (found.grad_norm == kSkipped) found.grad_norm = std::nan("");
  if (skips_ || (is_finite && has_finite_buffers)) return found;
  STOKER_ASSIGN_OR_RETURN(
      found.action,
      action_for(is_finite ? "a buffer, such as a statistic of batch norm," : kLossOrGradient,
                 step));
  return found;
}

Result<NonfiniteAction> NonfiniteGuard::action_for(const std::string& found, uint64_t step) const {
  if (config_.on_nonfinite != config::OnNonfinite::kRollback) return nonfinite_error(found, step);
  if (state_.rollbacks >= static_cast<uint64_t>(config_.max_nonfinite))
    return nonfinite_error(found, step,
                           " after " + std::to_string(state_.rollbacks) + " rollbacks");
  return NonfiniteAction::kRollBack;
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
                               {"reason", std::string(kAnyOfStep) + " not finite"}});
  } else {
    log_info("steps skipped", {{"step", step},
                               {"count", found.skipped},
                               {"total", state_.skipped_steps},
                               {"loss_scale", *found.maybe_loss_scale},
                               {"reason", "a gradient overflowed in fp16"}});
    if (*found.maybe_loss_scale < kMinScale)
      return nonfinite_error(kLossOrGradient, step, ", even at the minimum loss scale");
  }
  if (skips_ && consecutive >= config_.max_nonfinite)
    return nonfinite_error(kAnyOfStep, step,
                           " (" + std::to_string(consecutive) + " consecutive steps)");
  return {};
}

}  // namespace stoker::train
