// atomics: access to words of a ring by several processes, and waiting for the change of one.
//
// The test of schedules replaces them, to decide which thread continues after each access
// (tests/shared/ring/scheduled_atomics.h).
//
// Threads:  any, in any process that maps the words.
// Blocking: futex_wait() at most `timeout`; it can return early.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#ifdef STOKER_RING_ATOMICS
#include STOKER_RING_ATOMICS
#else
namespace stoker::ring {

template <typename T>
using AtomicRef = std::atomic_ref<T>;

// Sleeps while the word is `expected`.
void futex_wait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds timeout);
void futex_wake(uint32_t& word, int max_waiters);

}  // namespace stoker::ring
#endif

namespace stoker::ring {

template <typename T>
AtomicRef<T> atomic(T& word) {
  return AtomicRef<T>(word);
}

}  // namespace stoker::ring
