#include "daemon/train/step_watch.h"

#include <utility>

#include "shared/base/log.h"

namespace stoker::train {

StepWatch::StepWatch(WatchLinks links, Clock& clock, const model::Model& model, c10::Device device)
    : links_(std::move(links)),
      clock_(clock),
      device_(device),
      histograms_(model, links_.histogram_steps, links_.save_histograms) {
  if (links_.maybe_taps != nullptr) taps_.emplace(model, *links_.maybe_taps);
}

void StepWatch::on_begin(Phase phase) {
  // What a look inside costs is in no phase, so that a profile beside it stays true.
  if (phase == Phase::kOptimizer) histograms_.see_gradients();
  if (taps_ && phase == Phase::kOptimizer) taps_->see_gradients();
  if (taps_ && phase == Phase::kForward) taps_->begin_forward();
  if (profiler_) profiler_->begin(phase);
}

void StepWatch::on_end(Phase phase) noexcept {
  if (profiler_) profiler_->end(phase);
  if (taps_ && phase == Phase::kForward) taps_->end_forward();
}

void StepWatch::tap(Request request, uint64_t step) {
  if (taps_) return taps_->open(request, step);
  answer(request, Status(Code::kInvalidArgument, "nothing can be tapped here"));
}

void StepWatch::profile(Request request) {
  if (profiler_) {
    return answer(request,
                  Status(Code::kBusy, "a profile is being taken; ask again when it is done"));
  }
  profiler_.emplace(request.profile, clock_, device_);
  if (const Status started = profiler_->start(); !started.ok()) {
    profiler_.reset();
    return answer(request, started);
  }
  profile_request_ = std::move(request);
}

void StepWatch::end_watched_step(uint64_t step) {
  if (taps_) taps_->end_step();
  histograms_.end_step(step);
  if (!profiler_) return;
  profiler_->end_step(step);
  if (profiler_->is_full()) return hand_over();
  profiler_->begin_step();
}

void StepWatch::hand_over() {
  auto taken = profiler_->take();
  profiler_.reset();
  Request request = std::exchange(profile_request_, {});
  if (!taken.ok()) return answer(request, taken.status());
  log_info("profile recorded", {{"steps", taken->profile.steps.size()},
                                {"last_step", taken->profile.steps.back().step}});
  links_.save_profile(*std::move(taken), std::move(request));
}

void StepWatch::finish(const std::string& why) {
  if (taps_) taps_->end_all(why);
  if (!profiler_) return;
  if (profiler_->steps() > 0) return hand_over();
  profiler_.reset();
  answer(std::exchange(profile_request_, {}),
         Status(Code::kClosed, why + " before a step was profiled"));
}

}  // namespace stoker::train
