#include "shared/feed/element_limit.h"

#include <algorithm>
#include <cassert>

namespace stoker::feed {

Status ElementLimit::acquire(uint64_t bytes, Reader& reader, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (waiters_.empty() && fits(bytes, reader)) {
    take(bytes);
    return {};
  }
  Waiter waiter{.bytes = bytes, .reader = reader};
  waiters_.push_back(&waiter);
  reader.blocked_ = true;
  if (reader.on_blocked_) {
    lock.unlock();
    reader.on_blocked_();
    lock.lock();
  }
  changed_.wait(lock, stop, [&] { return waiter.granted; });
  if (waiter.granted) return {};
  waiters_.erase(std::ranges::find(waiters_, &waiter));
  reader.blocked_ = false;
  grant();  // the next one may be smaller
  return Status(StatusCode::kCancelled, "stopped while waiting for memory for an element");
}

void ElementLimit::set_window(Reader& reader, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  windows_ += bytes - reader.window_;
  reader.window_ = bytes;
  grant();
}

void ElementLimit::add(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  take(bytes);
}

void ElementLimit::release_bytes(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  assert(held_ >= bytes);
  held_ -= bytes;
  grant();
}

void ElementLimit::release(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  assert(held_ >= bytes && elements_ > 0);
  held_ -= bytes;
  --elements_;
  grant();
}

void ElementLimit::grant() {
  bool granted = false;
  while (!waiters_.empty() && fits(waiters_.front()->bytes, waiters_.front()->reader)) {
    Waiter& waiter = *waiters_.front();
    waiters_.pop_front();
    take(waiter.bytes);
    waiter.granted = granted = true;
    waiter.reader.blocked_ = false;
  }
  if (granted) changed_.notify_all();
}

uint64_t ElementLimit::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

uint64_t ElementLimit::elements() const {
  const std::lock_guard lock(mutex_);
  return elements_;
}

}  // namespace stoker::feed
