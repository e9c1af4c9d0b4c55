// scheduled_atomics: shared/ring/atomics.h for ring_schedule_test.cc. A ScheduleExplorer executes
// each operation, and can let other threads continue before it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <type_traits>

namespace stoker::ring {

enum class Operation : uint8_t {
  kLoad,
  kStore,
  kExchange,
  kFetchAdd,
  kFetchSub,
  kCompareExchange,
  kFutexWait,
  kFutexWake,
};

struct Access {
  Operation operation = Operation::kLoad;
  void* word = nullptr;
  size_t bytes = 0;
  std::memory_order order = std::memory_order_seq_cst;
  uint64_t operand = 0;   // value stored or added; number of waiters to wake
  uint64_t expected = 0;  // of kCompareExchange and kFutexWait
  std::source_location site{};
};

struct AccessResult {
  uint64_t value = 0;         // before the operation
  bool is_exchanged = false;  // of kCompareExchange
};

// Executes the access in the running thread of the ScheduleExplorer; without one, directly.
AccessResult perform(const Access& access);

template <typename T>
class AtomicRef {
 public:
  using Order = std::memory_order;
  using Site = std::source_location;

  explicit AtomicRef(T& word) : word_(word) {}

  T load(Order order = Order::seq_cst, const Site& site = Site::current()) const {
    return perform_with(Operation::kLoad, T{}, order, site);
  }
  void store(T value, Order order = Order::seq_cst, const Site& site = Site::current()) const {
    perform_with(Operation::kStore, value, order, site);
  }
  T exchange(T value, Order order = Order::seq_cst, const Site& site = Site::current()) const {
    return perform_with(Operation::kExchange, value, order, site);
  }
  T fetch_add(T value, Order order = Order::seq_cst, const Site& site = Site::current()) const {
    return perform_with(Operation::kFetchAdd, value, order, site);
  }
  T fetch_sub(T value, Order order = Order::seq_cst, const Site& site = Site::current()) const {
    return perform_with(Operation::kFetchSub, value, order, site);
  }
  bool compare_exchange_strong(T& expected, T value, Order order = Order::seq_cst,
                               const Site& site = Site::current()) const {
    const AccessResult result = perform({.operation = Operation::kCompareExchange,
                                         .word = &word_,
                                         .bytes = sizeof(T),
                                         .order = order,
                                         .operand = to_word(value),
                                         .expected = to_word(expected),
                                         .site = site});
    if (!result.is_exchanged) expected = static_cast<T>(result.value);
    return result.is_exchanged;
  }

 private:
  static uint64_t to_word(T value) { return static_cast<std::make_unsigned_t<T>>(value); }
  T perform_with(Operation operation, T operand, Order order, const Site& site) const {
    return static_cast<T>(perform({.operation = operation,
                                   .word = &word_,
                                   .bytes = sizeof(T),
                                   .order = order,
                                   .operand = to_word(operand),
                                   .site = site})
                              .value);
  }

  T& word_;
};

inline void futex_wait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds /*timeout*/,
                       const std::source_location& site = std::source_location::current()) {
  perform({.operation = Operation::kFutexWait,
           .word = &word,
           .bytes = sizeof(word),
           .expected = expected,
           .site = site});
}
inline void futex_wake(uint32_t& word, int max_waiters,
                       const std::source_location& site = std::source_location::current()) {
  perform({.operation = Operation::kFutexWake,
           .word = &word,
           .bytes = sizeof(word),
           .operand = static_cast<uint64_t>(max_waiters),
           .site = site});
}

}  // namespace stoker::ring
