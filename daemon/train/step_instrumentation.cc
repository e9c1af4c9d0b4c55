#include "daemon/train/step_instrumentation.h"

#include <utility>

#include "shared/base/log.h"

namespace stoker::train {

StepInstrumentation::StepInstrumentation(InspectionDependencies dependencies, Clock& clock,
                                         const model::Model& model, c10::Device device)
    : dependencies_(std::move(dependencies)),
      clock_(clock),
      device_(device),
      histograms_(model, dependencies_.histogram_steps, dependencies_.save_histograms) {
  if (dependencies_.maybe_inspections != nullptr)
    inspector_.emplace(model, *dependencies_.maybe_inspections);
}

void StepInstrumentation::on_begin(Phase phase) {
  // Inspections and histograms run outside of the phases, so that they do not distort a concurrent
  // profile.
  if (phase == Phase::kOptimizer) histograms_.on_gradients();
  if (inspector_ && phase == Phase::kOptimizer) inspector_->on_gradients();
  if (inspector_ && phase == Phase::kForward) inspector_->begin_forward();
  if (profiler_) profiler_->begin(phase);
}

void StepInstrumentation::on_end(Phase phase) noexcept {
  if (profiler_) profiler_->end(phase);
  if (inspector_ && phase == Phase::kForward) inspector_->end_forward();
}

void StepInstrumentation::inspection(Request request, uint64_t step) {
  if (inspector_) return inspector_->open(request, step);
  answer(request, Status(StatusCode::kInvalidArgument, "nothing can be tapped here"));
}

void StepInstrumentation::profile(Request request) {
  if (profiler_) {
    return answer(request,
                  Status(StatusCode::kBusy, "a profile is being taken; ask again when it is done"));
  }
  profiler_.emplace(request.profile, clock_, device_);
  if (const Status started = profiler_->start(); !started.ok()) {
    profiler_.reset();
    return answer(request, started);
  }
  profile_request_ = std::move(request);
}

void StepInstrumentation::end_instrumented_step(uint64_t step) {
  if (inspector_) inspector_->end_step();
  histograms_.end_step(step);
  if (!profiler_) return;
  profiler_->end_step(step);
  if (profiler_->is_full()) return deliver();
  profiler_->begin_step();
}

void StepInstrumentation::deliver() {
  auto taken = profiler_->take();
  profiler_.reset();
  Request request = std::exchange(profile_request_, {});
  if (!taken.ok()) return answer(request, taken.status());
  log_info("profile recorded", {{"steps", taken->profile.steps.size()},
                                {"last_step", taken->profile.steps.back().step}});
  dependencies_.save_profile(*std::move(taken), std::move(request));
}

void StepInstrumentation::finish(const std::string& why) {
  if (inspector_) inspector_->end_all(why);
  if (!profiler_) return;
  if (profiler_->steps() > 0) return deliver();
  profiler_.reset();
  answer(std::exchange(profile_request_, {}),
         Status(StatusCode::kClosed, why + " before a step was profiled"));
}

}  // namespace stoker::train
