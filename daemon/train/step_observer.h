// StepObserver: is notified when a phase of a step starts and ends. PhaseScope sends the
// notifications.
//
// Without instrumentation there is no observer, and a phase costs one null check.
//
// Threads: the trainer thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stoker::train {

// In the order of a step. With train.gradient_accumulation_steps the first four repeat for each
// micro-batch. Phases do not overlap. The rest of a step (requests, reports, bookkeeping) is in no
// phase.
enum class Phase : uint8_t {
  kDataWait,   // waiting for a batch from the ring
  kCopy,       // from the ring slot to tensors on the device
  kForward,    // up to the loss
  kBackward,   // up to the gradients
  kOptimizer,  // clipping, update and zeroing of the gradients
  kSnapshot,   // copying the state for a checkpoint
};
inline constexpr size_t kPhases = 6;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {
    "data wait", "host-to-device copy", "forward", "backward", "optimizer", "snapshot"};
inline std::string_view to_string(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // At the start of kOptimizer the gradients are complete and not yet clipped. May throw LibTorch's
  // exceptions.
  virtual void on_begin(Phase phase) = 0;
  virtual void on_end(Phase phase) noexcept = 0;
};

class PhaseScope {
 public:
  PhaseScope(StepObserver* maybe_observer, Phase phase)
      : maybe_observer_(maybe_observer), phase_(phase) {
    if (maybe_observer_ != nullptr) [[unlikely]]
      maybe_observer_->on_begin(phase_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() {
    if (maybe_observer_ != nullptr) [[unlikely]]
      maybe_observer_->on_end(phase_);
  }

 private:
  StepObserver* const maybe_observer_;
  const Phase phase_;
};

}  // namespace stoker::train
