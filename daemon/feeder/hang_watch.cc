#include "daemon/feeder/hang_watch.h"

#include <utility>

namespace stoker::feeder {

bool HangWatch::hangs(const Look& look) {
  last_ = look;
  const bool idle = look.progress.claims == 0;
  const bool moved = look.progress.samples != since_.progress.samples ||
                     (idle && look.progress.looks != since_.progress.looks);
  // Between one ticket and the next the other heartbeat counts: begin anew.
  const bool changed = idle != (since_.progress.claims == 0);
  if (!std::exchange(begun_, true) || moved || changed) {
    since_ = look;
    overdue_looks_ = 0;
    return false;
  }
  if (limit_.count() == 0 || still_for() < limit_) return false;
  return ++overdue_looks_ >= kLooksInARow;
}

}  // namespace stoker::feeder
