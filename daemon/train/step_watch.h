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

#include "daemon/train/histograms.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/step_profiler.h"
#include "daemon/train/tap_board.h"
#include "daemon/train/taps.h"
#include "shared/base/clock.h"

namespace stoker::train {

// Where what was seen goes.
struct WatchLinks {
  // Writes the profile and answers the request, on another thread.
  std::function<void(TakenProfile, Request)> save_profile;
  TapBoard* maybe_taps = nullptr;  // null: there are none
  uint64_t histogram_steps = 0;    // 0: never
  Histograms::Report save_histograms = {};
};

class StepWatch final : private StepObserver {
 public:
  // All must outlive this object.
  StepWatch(WatchLinks links, Clock& clock, const model::Model& model, c10::Device device);

  // Null while nobody looks.
  StepObserver* maybe_observer() { return looks() ? this : nullptr; }

  // kBusy to whoever asks for a second one.
  void profile(Request request);
  // `step`: the last that is done.
  void tap(Request request, uint64_t step);

  // Around a step, from the end of the one before; begin_step() again where training stood still
  // meanwhile.
  void begin_step() {
    if (profiler_) [[unlikely]]
      profiler_->begin_step();
  }
  // When its requests are answered, and it is going to be done.
  void enter_step(uint64_t step) {
    histograms_.begin_step(step);
    if (taps_ && taps_->any()) [[unlikely]]
      taps_->begin_step(step);
  }
  void end_step(uint64_t step) {
    if (looks()) [[unlikely]]
      end_watched_step(step);
  }
  // There will be no more steps.
  void finish(const std::string& why);

 private:
  bool looks() const { return profiler_ || (taps_ && taps_->any()) || histograms_.looks(); }
  void on_begin(Phase phase) override;
  void on_end(Phase phase) noexcept override;
  void end_watched_step(uint64_t step);
  void hand_over();

  const WatchLinks links_;
  Clock& clock_;
  const c10::Device device_;
  std::optional<StepProfiler> profiler_;
  std::optional<Taps> taps_;
  Histograms histograms_;
  Request profile_request_;
};

}  // namespace stoker::train
