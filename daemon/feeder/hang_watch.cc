#include "daemon/feeder/hang_watch.h"

#include <utility>

namespace stoker::feeder {

bool HangWatch::hangs(const Look& look) {
  last_ = look;
  const bool owes = look.progress.claims > 0 || look.progress.unclaimed > 0;
  const bool moved = look.progress.samples != since_.progress.samples;
  if (!std::exchange(begun_, true) || moved || !owes) {
    since_ = look;
    overdue_looks_ = 0;
    return false;
  }
  if (limit_.count() == 0 || still_for() < limit_) return false;
  return ++overdue_looks_ >= kLooksInARow;
}

}  // namespace stoker::feeder
