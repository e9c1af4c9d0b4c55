// TrainerChannels: what the trainers of a run, one after another, share with other threads:
// commands go in, status and inspections come out.
//
// Threads:  see each member; all have their own synchronization.
// Blocking: none of them ever blocks the trainer for a reader.
#pragma once

#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/status_board.h"
#include "shared/base/clock.h"

namespace stoker::train {

struct TrainerChannels {
  // `clock` must outlive this object.
  explicit TrainerChannels(Clock& clock) : inspections(clock) {}

  Mailbox mailbox;
  StatusBoard board;
  InspectionBoard inspections;
};

}  // namespace stoker::train
