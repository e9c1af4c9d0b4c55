// StatusBoard: where the trainer puts up what it is doing, and everybody else reads it without ever
// holding it up.
//
// Threads:  the trainer's thread writes; any thread reads.
// Blocking: the lock is held for the copy of one pointer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "shared/control/trainer_status.h"

namespace stoker::train {

class StatusBoard {
 public:
  void publish(control::TrainerStatus status) {
    auto next = std::make_shared<const control::TrainerStatus>(std::move(status));
    const std::lock_guard lock(mutex_);
    current_.swap(next);  // the old one is freed by `next`, after the lock
  }
  std::shared_ptr<const control::TrainerStatus> read() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }

  // Moves whenever training does: batches waited for, steps done. Written by the trainer's thread;
  // relaxed, because readers only ask whether it moved.
  void record_progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  void set_step(uint64_t step) { step_.store(step, std::memory_order_relaxed); }
  uint64_t step() const {
    return step_.load(std::memory_order_relaxed);
  }  // fresher than the published status

 private:
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> step_{0};
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::shared_ptr<const control::TrainerStatus> current_ =
      std::make_shared<const control::TrainerStatus>();
};

}  // namespace stoker::train
