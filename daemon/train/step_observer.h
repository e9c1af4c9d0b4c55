// StepObserver: who is told where a step is, while somebody looks inside training; and PhaseScope,
// which tells it.
//
// When nobody looks there is no observer, and a phase costs the test of one pointer.
//
// Threads: the trainer's thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stoker::train {

// In the order in which a step goes through them; with train.gradient_accumulation_steps the first
// four come again for each micro-batch. They do not overlap. What is in none of them is the rest of a step:
// requests, reports, bookkeeping.
enum class Phase : uint8_t {
  kFeedWait,   // for a batch of the ring
  kCopy,       // from the slot to tensors on the device
  kForward,    // until the loss
  kBackward,   // until the gradients
  kOptimizer,  // clipping, the update, and zeroing the gradients
  kSnapshot,   // the copy of the state for a checkpoint
};
inline constexpr size_t kPhases = 6;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {
    "data wait", "host-to-device copy", "forward", "backward", "optimizer", "snapshot"};
inline std::string_view to_string(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // When kOptimizer begins, the gradients are whole, and not clipped yet. May throw what LibTorch
  // throws.
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
