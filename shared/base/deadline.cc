#include "shared/base/deadline.h"

#include <condition_variable>
#include <mutex>

namespace stoker {

bool sleep_until(const std::stop_token& stop, Deadline deadline) {
  std::mutex mutex;
  std::condition_variable_any never_notified;
  std::unique_lock lock(mutex);
  const auto never = [] { return false; };
  if (deadline == kNoDeadline)
    never_notified.wait(lock, stop, never);
  else
    never_notified.wait_until(lock, stop, deadline, never);
  return !stop.stop_requested();
}

}  // namespace stoker
