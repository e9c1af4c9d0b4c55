// EventCount: waiting for a change of shared memory, across processes, with no system call where
// nobody waits.
//
//   waiter:   enter(); look again; sleep() if nothing has changed; leave()
//   notifier: change something; notify()
//
// Threads:  any number of waiters and notifiers, in any process that maps the words.
// Blocking: sleep() at most `timeout`; it may return early.
// Crash:    a waiter that is killed leaves `waiters` too high: each notify() then costs a system
//           call, nothing more.
#pragma once

#include <chrono>
#include <cstdint>

#include "shared/ring/ring_layout.h"

namespace stoker::ring {

class EventCount {
 public:
  explicit EventCount(EventWords& words) : words_(words) {}

  // The order of all four is sequentially consistent: either the waiter, looking after enter(),
  // sees the change, or the notifier sees the waiter.
  uint32_t enter();  // returns the epoch to sleep on
  void sleep(uint32_t epoch, std::chrono::nanoseconds timeout);
  void leave(uint32_t waiters = 1);
  void notify();      // wakes all
  void notify_one();  // where what changed is of use to one only

 private:
  void wake(int most);

  EventWords& words_;
};

}  // namespace stoker::ring
