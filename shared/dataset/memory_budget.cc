#include "shared/dataset/memory_budget.h"

#include <cassert>

namespace stoker::dataset {

bool MemoryBudget::take(uint64_t bytes) {
  if (bytes > limit_ - taken_) return false;
  taken_ += bytes;
  return true;
}

bool MemoryBudget::try_take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return take(bytes);
}

bool MemoryBudget::wait_for(uint64_t bytes, const std::stop_token& stop) {
  if (bytes > limit_) return false;
  std::unique_lock lock(mutex_);
  return freed_.wait(lock, stop, [&] { return take(bytes); });
}

void MemoryBudget::release(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    assert(bytes <= taken_);
    taken_ -= bytes;
  }
  freed_.notify_all();
}

uint64_t MemoryBudget::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

}  // namespace stoker::dataset
