#include "shared/data/files/prefetched_bytes.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

namespace stoker::data::files {

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

PrefetchedBytes::~PrefetchedBytes() {
  if (room_ > 0) budget_.release(room_);
}

bool PrefetchedBytes::reserve(uint64_t bytes) {
  bool there = budget_.try_take(bytes);
  if (!there && stop_ && room_ == 0) {
    const auto start = std::chrono::steady_clock::now();
    there = budget_.wait_for(bytes, *stop_);
    waited_for_room_ += std::chrono::steady_clock::now() - start;
  }
  if (there) room_ += bytes;
  return there;
}

void PrefetchedBytes::fetch(const ByteRange& range,
                            const std::function<Status(std::span<std::byte>)>& read) {
  if (!reserve(range.count)) return;
  try {
    Part part{.range = range, .status = {}, .bytes = std::vector<std::byte>(range.count)};
    part.status = read(part.bytes);
    parts_.push_back(std::move(part));
  } catch (const std::bad_alloc&) {
    // read() allocates the same memory and reports a failure for the sample.
  }
}

PrefetchedBytes::Part* PrefetchedBytes::find_part(const ByteRange& range) {
  const auto found = std::ranges::find_if(
      parts_, [&](const Part& part) { return !part.consumed && part.range == range; });
  if (found == parts_.end()) return nullptr;
  found->consumed = true;
  return &*found;
}

std::optional<Status> PrefetchedBytes::try_take(const ByteRange& range,
                                                std::span<std::byte> bytes) {
  assert(bytes.size() == range.count);
  const Part* const part = find_part(range);
  if (part == nullptr) return std::nullopt;
  if (part->status.ok() && !bytes.empty())
    std::memcpy(bytes.data(), part->bytes.data(), bytes.size());
  return part->status;
}

std::optional<Status> PrefetchedBytes::try_take(const ByteRange& range,
                                                std::vector<std::byte>& bytes) {
  Part* const part = find_part(range);
  if (part == nullptr) return std::nullopt;
  if (part->status.ok()) bytes.swap(part->bytes);
  return part->status;
}

bool PrefetchedBytes::all_consumed() const {
  return std::ranges::all_of(parts_, [](const Part& part) { return part.consumed; });
}

}  // namespace stoker::data::files
