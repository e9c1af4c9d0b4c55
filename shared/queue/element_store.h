// ElementStore: the elements of a queue, taken in the order that defines its type.
//
// Threads:  not thread-safe; guarded by the queue's mutex.
// Errors:   std::bad_alloc, which leaves the elements unchanged.
#pragma once

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
  int64_t size() const { return size_; }
  virtual void push(Tuple&& element) = 0;
  virtual void pop(Tuple& element) noexcept = 0;  // size() > 0
  // Undoes the pop() of `elements`, in that order, except for the draws of the generator. Ends the
  // process if there is no memory.
  virtual void put_back(std::vector<Tuple>&& elements) noexcept = 0;
  // In an order in which push() of the elements gives the same store.
  virtual void for_each(const std::function<void(const Tuple&)>& visit) const = 0;
  virtual std::optional<GeneratorState> generator() const { return std::nullopt; }
  virtual void set_generator(const GeneratorState&) {}

 protected:
  int64_t size_ = 0;
};

std::unique_ptr<ElementStore> make_element_store(const QueueOptions& options);

}  // namespace stoker::queue
