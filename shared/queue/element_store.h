// ElementStore: the elements of a queue, taken in the order that defines its type.
//
// Threads:  not thread-safe; guarded by the queue's mutex.
// Errors:   std::bad_alloc, which leaves the elements unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

 protected:
  int64_t size_ = 0;
};

std::unique_ptr<ElementStore> make_element_store(const QueueOptions& options);

}  // namespace stoker::queue
