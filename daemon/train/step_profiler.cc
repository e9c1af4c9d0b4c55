#include "daemon/train/step_profiler.h"

#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace stoker::train {
namespace {

using std::chrono::nanoseconds;

// Waiting for a batch happens on the thread only.
bool is_on_device(Phase phase) { return phase != Phase::kDataWait; }

nanoseconds between(const c10::Event& begin, const c10::Event& end) {
  return std::chrono::duration_cast<nanoseconds>(
      std::chrono::duration<double, std::milli>(begin.elapsedTime(end)));
}

}  // namespace

StepProfiler::StepProfiler(const control::Profile& request, Clock& clock, c10::Device device)
    : request_(request), clock_(clock), device_(device) {
  profile_.device = device.str();
}

Status StepProfiler::start() {
  if (request_.kernels) {
    kernels_.emplace(device_);
    STOKER_RETURN_IF_ERROR(kernels_->start());
  }
  began_ = clock_.monotonic();
  if (!device_.is_cpu()) device_began_.emplace(mark_on_device());
  begin_step();
  return {};
}

c10::Event StepProfiler::mark_on_device() const {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // with timing enabled
  event.record(guard.getStream(device_));
  return event;
}

void StepProfiler::begin_step() {
  current_ = ProfiledStep{.begin = now()};
  while (!device_spans_.empty() && device_spans_.back().step == profile_.steps.size())
    device_spans_.pop_back();
}

void StepProfiler::end_step(uint64_t step) {
  current_.step = step;
  current_.end = now();
  profile_.steps.push_back(std::exchange(current_, {}));
}

void StepProfiler::begin(Phase phase) {
  if (kernels_) kernels_->mark(to_string(phase).data());
  current_.spans.push_back({.phase = phase, .begin = now(), .end = now()});
  if (device_.is_cpu() || !is_on_device(phase)) return;
  device_spans_.push_back({.step = profile_.steps.size(),
                           .phase = phase,
                           .begin = mark_on_device(),
                           .end = c10::Event(device_.type(), c10::EventFlag::BACKEND_DEFAULT)});
}

void StepProfiler::end(Phase phase) noexcept {
  if (kernels_) kernels_->unmark();
  if (current_.spans.empty() || current_.spans.back().phase != phase) return;
  current_.spans.back().end = now();
  if (device_.is_cpu() || !is_on_device(phase) || device_spans_.empty()) return;
  try {
    device_spans_.back().end = mark_on_device();
  } catch (...) {
    device_spans_.pop_back();  // the next device call reports the error
  }
}

void StepProfiler::read_device_spans() {
  if (!device_began_) return;
  for (DeviceSpan& span : device_spans_) {
    if (span.step >= profile_.steps.size()) continue;
    span.end.synchronize();
    const nanoseconds begin = between(*device_began_, span.begin);
    profile_.steps[span.step].device_spans.push_back(
        {.phase = span.phase, .begin = begin, .end = begin + between(span.begin, span.end)});
  }
}

Result<RecordedProfile> StepProfiler::take() {
  read_device_spans();
  RecordedProfile taken{.profile = std::move(profile_), .save_kernels = {}};
  if (kernels_) {
    STOKER_ASSIGN_OR_RETURN(taken.save_kernels, kernels_->stop());
  }
  return taken;
}

}  // namespace stoker::train
