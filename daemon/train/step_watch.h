// StepWatch: everything that looks inside training: who asked for it, and what they get.
//
// Threads:  the trainer's thread only.
// Blocking: never for the disk or a client; while somebody looks, for the device.
// Owner:    the links and the clock must outlive it.
// Errors:   on_begin() and end_step() pass on what LibTorch throws.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/train/mailbox.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/step_profiler.h"
#include "shared/base/clock.h"

namespace stoker::train {

// Where what was seen goes.
struct WatchLinks {
  // Writes the profile and answers the request, on another thread.
  std::function<void(TakenProfile, Request)> save_profile;
};

class StepWatch final : private StepObserver {
 public:
  StepWatch(WatchLinks links, Clock& clock, c10::Device device);

  // Null while nobody looks.
  StepObserver* maybe_observer() { return profiler_ ? this : nullptr; }

  // kBusy to whoever asks for a second one.
  void profile(Request request);

  // Around a step, from the end of the one before; begin_step() again where training stood still
  // meanwhile.
  void begin_step() {
    if (profiler_) [[unlikely]]
      profiler_->begin_step();
  }
  void end_step(uint64_t step) {
    if (profiler_) [[unlikely]]
      end_profiled_step(step);
  }
  // There will be no more steps.
  void finish(const std::string& why);

 private:
  void on_begin(Phase phase) override { profiler_->begin(phase); }
  void on_end(Phase phase) noexcept override { profiler_->end(phase); }
  void end_profiled_step(uint64_t step);
  void hand_over();

  const WatchLinks links_;
  Clock& clock_;
  const c10::Device device_;
  std::optional<StepProfiler> profiler_;
  Request profile_request_;
};

}  // namespace stoker::train
