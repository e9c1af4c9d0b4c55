// StatusBoard: publishes the trainer's status to other threads, which can never delay the trainer.
//
// Threads:  the trainer thread writes; any thread reads.
// Blocking: the lock is held for the copy of one pointer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "shared/control/trainer_phase.h"
#include "shared/control/trainer_status.h"

namespace stoker::train {

class StatusBoard {
 public:
  void publish(control::TrainerStatus status) {
    auto next = std::make_shared<const control::TrainerStatus>(std::move(status));
    const std::lock_guard lock(mutex_);
    current_.swap(next);  // `next` frees the old status after the lock is released
  }
  std::shared_ptr<const control::TrainerStatus> read() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }

  // Incremented for each micro-batch, for each published status and while the last checkpoint is
  // being written. Written by the trainer thread; relaxed order is enough, because readers only
  // check whether it changed.
  void record_progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // Written by the trainer thread; relaxed order, as above.
  void set_phase(control::TrainerPhase phase) { phase_.store(phase, std::memory_order_relaxed); }
  control::TrainerPhase phase() const { return phase_.load(std::memory_order_relaxed); }
  void set_step(uint64_t step) { step_.store(step, std::memory_order_relaxed); }
  // More recent than the step of the published status.
  uint64_t step() const { return step_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> step_{0};
  std::atomic<control::TrainerPhase> phase_{control::TrainerPhase::kStart};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const control::TrainerStatus> current_ =
      std::make_shared<const control::TrainerStatus>();
};

// A phase of the trainer until the end of the block.
class ScopedPhase {
 public:
  ScopedPhase(StatusBoard& board, control::TrainerPhase phase)
      : board_(board), before_(board.phase()) {
    board_.set_phase(phase);
  }
  ~ScopedPhase() { board_.set_phase(before_); }
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;

 private:
  StatusBoard& board_;
  const control::TrainerPhase before_;
};

}  // namespace stoker::train
