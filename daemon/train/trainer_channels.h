// TrainerChannels: what the trainers of a run, one after another, share with other threads:
// commands go in, status and inspections come out.
//
// Threads:  see each member.
// Blocking: none of them ever blocks the trainer for a reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/status_board.h"
#include "shared/base/clock.h"

namespace stoker::train {

// Logs the start and the end of each pause once, whether it is that of one trainer or lasts until the
// next one, after the memory of the device was released. For the trainer thread.
class PauseLog {
 public:
  void pause(uint64_t step);
  void resume(uint64_t step);  // does nothing if there was no pause

 private:
  bool is_paused_ = false;
};

struct TrainerChannels {
  // `clock` must outlive this object.
  explicit TrainerChannels(Clock& clock) : inspections(clock) {}

  Mailbox mailbox;
  StatusBoard board;
  InspectionBoard inspections;
  // Set by `pause` and cleared by `resume`; only for the trainer thread. It is here because a
  // rollback during the last step before the pause must not end the pause.
  bool is_paused = false;
  PauseLog pause_log;
  // `pause --release` commands that are answered when the memory is released; only for the trainer
  // thread.
  std::vector<Done> release_requests;
  // Exchanges of control records with the other ranks of a group. Written by the trainer thread;
  // relaxed order is enough, because readers only check whether the number changed.
  std::atomic<uint64_t> group_exchanges{0};
  std::atomic<bool> expects_exchange{false};  // from the start of a segment to its last step
};

}  // namespace stoker::train
