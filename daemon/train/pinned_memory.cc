#include "daemon/train/pinned_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

constexpr size_t kPageBytes = 4096;

// A multiple of the slot size and the page size, so that chunks share neither slots nor pages.
size_t chunk_of(size_t slot_bytes, size_t wanted, size_t all) {
  const size_t unit = std::lcm(std::max<size_t>(slot_bytes, 1), kPageBytes);
  if (unit >= all || unit == 0) return all;
  return std::min(all, std::max<size_t>(wanted / unit, 1) * unit);
}

}  // namespace

PinnedMemory::PinnedMemory(Driver driver, std::span<std::byte> memory, size_t slot_bytes,
                           size_t chunk_bytes)
    : driver_(std::move(driver)) {
  if (memory.empty()) return;
  const size_t chunk = chunk_of(slot_bytes, chunk_bytes, memory.size());
  size_t pinned_bytes = 0;
  for (size_t from = 0; from < memory.size(); from += chunk) {
    const auto part = memory.subspan(from, std::min(chunk, memory.size() - from));
    if (!driver_.pin(part.data(), part.size())) break;
    chunks_.push_back(part.data());
    pinned_bytes += part.size();
  }
  if (pinned_bytes == memory.size()) return;
  log_warn("ring partially pinned", {{"bytes", memory.size()}, {"pinned_bytes", pinned_bytes}});
}

PinnedMemory::~PinnedMemory() {
  for (std::byte* const chunk : chunks_) driver_.unpin(chunk);
}

}  // namespace stoker::train
