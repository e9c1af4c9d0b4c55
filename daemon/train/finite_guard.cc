#include "daemon/train/finite_guard.h"

#include <cmath>

#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

constexpr const char* kWhatHelps = "try a smaller optimizer.lr or optimizer.clip_norm";

}  // namespace

FiniteGuard::FiniteGuard(const config::TrainConfig& config, TrainingState& state)
    : config_(config), state_(state) {
  if (config.on_nonfinite != "skip") return;
  skipped_ = at::zeros_like(state.loss_sum);
  in_a_row_ = at::full_like(state.loss_sum, static_cast<double>(state.nonfinite_in_a_row));
}

void FiniteGuard::finish(TrainStep& step, double lr) {
  ++state_.loss_steps;
  if (config_.on_nonfinite != "skip") {
    grad_norm_ = step.finish(lr);
    state_.loss_sum.add_(step.loss());
    return;
  }
  const at::Tensor norm = step.finish_if_finite(lr);
  const at::Tensor& skipped = state_.optimizer().skipped();
  const at::Tensor is_skipped = skipped.to(at::kBool);
  const at::Tensor before = grad_norm_.defined() ? grad_norm_ : at::zeros_like(norm);
  grad_norm_ = at::where(is_skipped, before, norm);
  state_.loss_sum.add_(at::where(is_skipped, at::zeros_like(step.loss()), step.loss()));
  skipped_.add_(skipped);
  in_a_row_.add_(skipped).mul_(skipped);
}

Result<FiniteGuard::Verdict> FiniteGuard::look() {
  if (skipped_.defined()) return look_at_skipped();
  const double loss = state_.loss_sum.item<double>();
  const double norm = grad_norm_.defined() ? grad_norm_.item<double>() : 0.0;
  if (std::isfinite(loss) && std::isfinite(norm)) return Verdict::kFine;
  if (config_.on_nonfinite == "stop") return too_many("");
  if (state_.rollbacks >= static_cast<uint64_t>(config_.nonfinite_limit))
    return too_many(" after " + std::to_string(state_.rollbacks) + " rollbacks");
  return Verdict::kRollBack;
}

Result<FiniteGuard::Verdict> FiniteGuard::look_at_skipped() {
  const auto skipped = static_cast<int64_t>(skipped_.item<double>());
  const auto in_a_row = static_cast<int64_t>(in_a_row_.item<double>());
  state_.nonfinite_in_a_row = static_cast<uint64_t>(in_a_row);
  if (skipped == 0) return Verdict::kFine;
  skipped_.zero_();
  state_.loss_steps -= skipped;
  state_.skipped_steps += static_cast<uint64_t>(skipped);
  log_warn("steps skipped", {{"step", state_.step},
                             {"skipped", skipped},
                             {"in_all", state_.skipped_steps},
                             {"reason", "loss or gradient not finite"}});
  if (in_a_row >= config_.nonfinite_limit)
    return too_many(", nor at the " + std::to_string(in_a_row - 1) + " steps before");
  return Verdict::kFine;
}

Status FiniteGuard::too_many(const std::string& what) const {
  return Status(Code::kCorrupt, "the loss or its gradient is not a number at step " +
                                    std::to_string(state_.step) + what +
                                    "; nothing of it is saved; " + kWhatHelps);
}

}  // namespace stoker::train
