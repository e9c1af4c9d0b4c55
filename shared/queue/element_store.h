// ElementStore: the elements of a queue, taken in the order that defines its type.
//
// Threads:  not thread-safe, except that one thread may call try_push() and one try_pop() at the same
//           time, and any thread size().
// Errors:   std::bad_alloc, which leaves the elements unchanged.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "shared/queue/queue.h"
#include "shared/queue/tensor.h"

namespace stoker::queue {

class ElementStore {
 public:
  virtual ~ElementStore() = default;
  int64_t size() const {
    return static_cast<int64_t>(pushed_.load(std::memory_order_acquire) -
                                popped_.load(std::memory_order_acquire));
  }
  virtual void push(Tuple&& element) = 0;
  virtual void pop(Tuple& element) noexcept = 0;  // size() > 0
  // Undoes the pop() of `elements`, in that order, except for the draws of the generator. Ends the
  // process if there is no memory.
  virtual void put_back(std::vector<Tuple>&& elements) noexcept = 0;
  // In an order in which push() of the elements gives the same store.
  virtual void for_each(const std::function<void(const Tuple&)>& visit) const = 0;
  virtual std::optional<GeneratorState> generator() const { return std::nullopt; }
  virtual void set_generator(const GeneratorState&) {}

  // push() if there are fewer than `capacity` elements, and pop() if there is one. They may fail
  // although it would be possible; a store that cannot be used by two threads always fails.
  virtual bool try_push(Tuple&&, int64_t /*capacity*/) noexcept { return false; }
  virtual bool try_pop(Tuple&) noexcept { return false; }

 protected:
  static void add(std::atomic<uint64_t>& count, uint64_t n) {
    count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_release);
  }

  // Elements in total: size() is the difference. Each is written by the threads of its side only, and
  // publishes the element, or its place, to the other. The other side's last known value is next to
  // it, so that the line moves between processors once for many elements.
  alignas(kCacheLine) std::atomic<uint64_t> pushed_{0};
  uint64_t known_popped_ = 0;
  alignas(kCacheLine) std::atomic<uint64_t> popped_{0};
  uint64_t known_pushed_ = 0;
};

std::unique_ptr<ElementStore> make_element_store(const QueueOptions& options);

}  // namespace stoker::queue
