#include "daemon/train/step_instrumentation.h"

#include <utility>
#include <vector>

#include "shared/base/log.h"

namespace stoker::train {

namespace {

std::vector<std::string> names_of(const std::vector<TensorSpec>& sample) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : sample) names.push_back(spec.name);
  return names;
}

}  // namespace

StepInstrumentation::StepInstrumentation(const config::MetricsConfig& config, MetricsSink& sink,
                                         InspectionBoard& inspections, Clock& clock,
                                         const model::Model& model, c10::Device device,
                                         const std::vector<TensorSpec>& sample,
                                         TensorInspector::FilesOf files_of)
    : sink_(sink),
      clock_(clock),
      model_(model),
      device_(device),
      input_names_(names_of(sample)),
      files_of_(std::move(files_of)),
      inspector_(model, inspections, input_names_),
      histograms_(model, config.tensorboard ? config.histogram_every_steps.value_or(0) : 0, sink) {}

void StepInstrumentation::on_begin(Phase phase) {
  // Inspections and histograms run outside of the phases, so that they do not distort a concurrent
  // profile.
  if (phase == Phase::kOptimizer) histograms_.on_gradients();
  if (phase == Phase::kOptimizer) inspector_.on_gradients();
  if (phase == Phase::kForward) inspector_.begin_forward();
  if (phase == Phase::kForward && tracer_) tracer_->start();
  if (profiler_) profiler_->begin(phase);
}

void StepInstrumentation::on_end(Phase phase) noexcept {
  if (profiler_) profiler_->end(phase);
  if (phase == Phase::kForward) inspector_.end_forward();
  if (phase == Phase::kForward && tracer_) tracer_->stop();
}

void StepInstrumentation::open_inspection(const control::OpenInspection& command, uint64_t step,
                                          const Done& done) {
  inspector_.open(command, step, done);
}

void StepInstrumentation::profile(const control::Profile& command, Done done,
                                  OnProgress on_progress) {
  if (profiler_) {
    return answer(done, Status(StatusCode::kBusy,
                               "a profile is being recorded; try again when it is complete"));
  }
  profiler_.emplace(command, clock_, device_);
  if (const Status started = profiler_->start(); !started.ok()) {
    profiler_.reset();
    return answer(done, started);
  }
  profile_done_ = std::move(done);
  profile_progress_ = std::move(on_progress);
}

void StepInstrumentation::end_instrumented_step(uint64_t step) {
  inspector_.end_step();
  histograms_.end_step(step);
  if (tracer_) sink_.report_graph(tracer_->take());
  tracer_.reset();
  if (!profiler_) return;
  profiler_->end_step(step);
  if (profile_progress_) profile_progress_(profiler_->steps(), profiler_->requested_steps());
  if (profiler_->is_full()) return deliver();
  profiler_->begin_step();
}

void StepInstrumentation::deliver() {
  auto taken = profiler_->take();
  profiler_.reset();
  Done done = std::exchange(profile_done_, {});
  if (!taken.ok()) return answer(done, taken.status());
  log_info("profile recorded", {{"steps", taken->profile.steps.size()},
                                {"last_step", taken->profile.steps.back().step}});
  sink_.save_profile(*std::move(taken), std::move(done));
}

void StepInstrumentation::finish(const std::string& why) {
  if (profiler_ && profiler_->steps() > 0) deliver();
  abandon(why, Status(StatusCode::kClosed, why + " before a step was profiled"));
}

void StepInstrumentation::abandon(const std::string& why, const Status& reply) {
  inspector_.end_all(why);
  if (!profiler_) return;
  profiler_.reset();
  answer(std::exchange(profile_done_, {}), reply);
}

}  // namespace stoker::train
