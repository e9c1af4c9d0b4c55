// scheduled_atomics: shared/ring/atomics.h for a test that decides after each access which thread
// continues (ring_schedule_test.cc). Its threads are coroutines of one thread, so every access is
// sequentially consistent.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <source_location>
#include <utility>

namespace stoker::ring {

// Before an access to a word: the thread can lose its turn, or end as if it were killed.
void schedule_point();

// A change of the code that the test must detect.
struct Mutation {
  enum class Kind {
    kNone,
    kExchangeAlways,  // a compare-and-swap succeeds whatever the word is
    kForgetAdd,       // an addition has no effect
    kForgetStore,     // a store has no effect
    kStaleLoad,       // a load returns what the thread read there the time before
    kWakeNone,        // a wake-up is lost
  };
  Kind kind = Kind::kNone;
  uint32_t line = 0;  // of the access in mapped_ring.cc or mapped_ring.h
  auto operator<=>(const Mutation&) const = default;
};
bool is_mutated(Mutation::Kind kind, const std::source_location& at);
// What the running thread read from this word at this line the time before; now it is `now`.
uint64_t exchange_last_read(const void* word, uint32_t line, uint64_t now);

template <typename T>
class AtomicRef {
 public:
  using Location = std::source_location;

  explicit AtomicRef(T& word) : word_(word) {}

  T load(std::memory_order = std::memory_order_seq_cst,
         const Location& at = Location::current()) const {
    schedule_point();
    if (!is_mutated(Mutation::Kind::kStaleLoad, at)) return word_;
    return static_cast<T>(exchange_last_read(&word_, at.line(), static_cast<uint64_t>(word_)));
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst,
             const Location& at = Location::current()) const {
    schedule_point();
    if (!is_mutated(Mutation::Kind::kForgetStore, at)) word_ = value;
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) const {
    schedule_point();
    return std::exchange(word_, value);
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order = std::memory_order_seq_cst,
                               const Location& at = Location::current()) const {
    schedule_point();
    if (word_ != expected && !is_mutated(Mutation::Kind::kExchangeAlways, at)) {
      expected = word_;
      return false;
    }
    word_ = value;
    return true;
  }
  T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst,
              const Location& at = Location::current()) const {
    if (order != std::memory_order_relaxed) schedule_point();  // relaxed: statistics
    const T before = word_;
    if (!is_mutated(Mutation::Kind::kForgetAdd, at)) word_ = static_cast<T>(before + value);
    return before;
  }
  T fetch_sub(T value, std::memory_order = std::memory_order_seq_cst) const {
    schedule_point();
    const T before = word_;
    word_ = static_cast<T>(before - value);
    return before;
  }

 private:
  T& word_;
};

// The timeout never expires, so that a lost wake-up is a deadlock.
void futex_wait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds timeout);
void futex_wake(uint32_t& word, int max_waiters);

}  // namespace stoker::ring
