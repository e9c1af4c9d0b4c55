// StepInstrumentation: everything that looks inside training: who asked for it, and what they get.
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
#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/step_profiler.h"
#include "daemon/train/tensor_inspector.h"
#include "shared/base/clock.h"

namespace stoker::train {

// Where what was seen goes.
struct InspectionDependencies {
  // Writes the profile and answers the request, on another thread.
  std::function<void(TakenProfile, Request)> save_profile;
  InspectionBoard* maybe_inspections = nullptr;  // null: there are none
  uint64_t histogram_steps = 0;                  // 0: never
  Histograms::Report save_histograms = {};
};

class StepInstrumentation final : private StepObserver {
 public:
  // All must outlive this object.
  StepInstrumentation(InspectionDependencies dependencies, Clock& clock, const model::Model& model,
                      c10::Device device);

  // Null while nobody looks.
  StepObserver* maybe_observer() { return is_active() ? this : nullptr; }

  // kBusy to whoever asks for a second one.
  void profile(Request request);
  // `step`: the last that is done.
  void inspection(Request request, uint64_t step);

  // Around a step, from the end of the one before; begin_step() again where training stood still
  // meanwhile.
  void begin_step() {
    if (profiler_) [[unlikely]]
      profiler_->begin_step();
  }
  // When its requests are answered, and it is going to be done.
  void enter_step(uint64_t step) {
    histograms_.begin_step(step);
    if (inspector_ && inspector_->any()) [[unlikely]]
      inspector_->begin_step(step);
  }
  void end_step(uint64_t step) {
    if (is_active()) [[unlikely]]
      end_instrumented_step(step);
  }
  // There will be no more steps.
  void finish(const std::string& why);

 private:
  bool is_active() const {
    return profiler_ || (inspector_ && inspector_->any()) || histograms_.is_active();
  }
  void on_begin(Phase phase) override;
  void on_end(Phase phase) noexcept override;
  void end_instrumented_step(uint64_t step);
  void deliver();

  const InspectionDependencies dependencies_;
  Clock& clock_;
  const c10::Device device_;
  std::optional<StepProfiler> profiler_;
  std::optional<TensorInspector> inspector_;
  Histograms histograms_;
  Request profile_request_;
};

}  // namespace stoker::train
