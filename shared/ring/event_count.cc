#include "shared/ring/event_count.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace stoker::ring {

uint32_t EventCount::enter() {
  std::atomic_ref(words_.waiters).fetch_add(1);
  return std::atomic_ref(words_.epoch).load();
}

void EventCount::sleep(uint32_t epoch, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{};
  relative.tv_sec = seconds.count();
  relative.tv_nsec = (timeout - seconds).count();
  // Not FUTEX_WAIT_PRIVATE: that one is keyed by this process's address, and another process's wake
  // never finds it. (std::atomic::wait uses it.) Every outcome means the same to the caller: look
  // again.
  ::syscall(SYS_futex, &words_.epoch, FUTEX_WAIT, epoch, &relative, nullptr, 0);
}

void EventCount::leave(uint32_t waiters) { std::atomic_ref(words_.waiters).fetch_sub(waiters); }

void EventCount::wake(int most) {
  std::atomic_ref(words_.epoch).fetch_add(1);
  if (std::atomic_ref(words_.waiters).load() > 0)
    ::syscall(SYS_futex, &words_.epoch, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

void EventCount::notify() { wake(INT_MAX); }
void EventCount::notify_one() { wake(1); }

}  // namespace stoker::ring
