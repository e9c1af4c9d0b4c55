#include "shared/dataset/sample_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

namespace stoker::dataset {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kMaxLinesFetched = 65;  // of a sample: what follows them the processor expects
// Nearer, a small sample comes too late; further off, large ones have pushed it out again.
constexpr size_t kFetchAhead = 4096;  // bytes

size_t sum_of(std::span<const size_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

}  // namespace

uint64_t SampleCache::bytes_for(uint64_t samples, std::span<const size_t> tensor_bytes) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(samples, sum_of(tensor_bytes) + sizeof(std::atomic<uint8_t>), &bytes))
    return std::numeric_limits<uint64_t>::max();
  return bytes;
}

std::unique_ptr<SampleCache> SampleCache::try_create(uint64_t samples,
                                                     std::vector<size_t> tensor_bytes) {
  const size_t size = samples * sum_of(tensor_bytes);
  void* const bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED) return nullptr;
  // Samples are taken in any order: with small pages each would wait for a walk through their table.
  ::madvise(bytes, size, MADV_HUGEPAGE);
  try {
    return std::unique_ptr<SampleCache>(
        new SampleCache(static_cast<std::byte*>(bytes), size, samples, std::move(tensor_bytes)));
  } catch (const std::bad_alloc&) {
    ::munmap(bytes, size);
    return nullptr;
  }
}

SampleCache::SampleCache(std::byte* bytes, size_t size, uint64_t samples,
                         std::vector<size_t> tensor_bytes)
    : bytes_(bytes),
      size_(size),
      tensor_bytes_(std::move(tensor_bytes)),
      sample_bytes_(sum_of(tensor_bytes_)),
      states_(std::make_unique<std::atomic<uint8_t>[]>(samples)) {}

SampleCache::~SampleCache() { ::munmap(bytes_, size_); }

size_t SampleCache::samples_to_fetch_ahead() const {
  return std::clamp<size_t>(kFetchAhead / std::max<size_t>(sample_bytes_, 1), 2, 4);
}

void SampleCache::fetch(uint64_t sample) const {
  const std::byte* const slot = slot_at(sample);
  const size_t bytes = std::min(sample_bytes_, kMaxLinesFetched * kCacheLine);
  for (size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(slot + at);
}

void SampleCache::take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const {
  const std::byte* from = slot_at(sample);
  for (size_t tensor = 0; tensor < tensor_bytes_.size(); ++tensor) {
    assert(outputs[tensor].size() == tensor_bytes_[tensor]);
    std::memcpy(outputs[tensor].data(), from, tensor_bytes_[tensor]);
    from += tensor_bytes_[tensor];
  }
}

void SampleCache::put(uint64_t sample, std::span<const std::span<std::byte>> outputs) {
  uint8_t expected = kAbsent;
  if (!states_[sample].compare_exchange_strong(expected, kLoading, std::memory_order_relaxed))
    return;
  std::byte* to = slot_at(sample);
  for (size_t tensor = 0; tensor < tensor_bytes_.size(); ++tensor) {
    assert(outputs[tensor].size() == tensor_bytes_[tensor]);
    std::memcpy(to, outputs[tensor].data(), tensor_bytes_[tensor]);
    to += tensor_bytes_[tensor];
  }
  states_[sample].store(kPresent, std::memory_order_release);
}

}  // namespace stoker::dataset
