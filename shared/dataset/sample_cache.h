// SampleCache: room for the tensors of every sample of a set, of which each is put in once.
//
// Threads:  every method may be called from any thread. Lock-free: a sample is seen when it is whole.
// Owner:    the memory is mapped and, but for the pages of samples that are there, not used.
// Errors:   try_create(): null where there is no address space.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shared/dataset/row_outputs.h"

namespace stoker::dataset {

class SampleCache {
 public:
  // `tensor_bytes`: of each tensor of a sample.
  static std::unique_ptr<SampleCache> try_create(uint64_t samples,
                                                 std::vector<size_t> tensor_bytes);
  // What that takes; no more than UINT64_MAX.
  static uint64_t bytes_for(uint64_t samples, std::span<const size_t> tensor_bytes);
  ~SampleCache();
  SampleCache(const SampleCache&) = delete;
  SampleCache& operator=(const SampleCache&) = delete;

  bool has(uint64_t sample) const {
    return states_[sample].load(std::memory_order_acquire) == kPresent;
  }
  // Asks for the bytes of a sample that will be taken soon: best when so many are taken before it.
  size_t samples_to_fetch_ahead() const;
  void fetch(uint64_t sample) const;
  // Of a sample that is there, into `outputs`.
  void take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // From `outputs`; nothing where it is there, or another thread puts it.
  void put(uint64_t sample, std::span<const std::span<std::byte>> outputs);

 private:
  enum State : uint8_t { kAbsent, kLoading, kPresent };

  SampleCache(std::byte* bytes, size_t size, uint64_t samples, std::vector<size_t> tensor_bytes);
  std::byte* slot_at(uint64_t sample) const { return bytes_ + sample * sample_bytes_; }

  // Constant after construction.
  std::byte* const bytes_;
  const size_t size_;
  const std::vector<size_t> tensor_bytes_;
  const size_t sample_bytes_;
  // kAbsent to kLoading by whoever puts the sample; kPresent (release) when its bytes are.
  const std::unique_ptr<std::atomic<uint8_t>[]> states_;
};

}  // namespace stoker::dataset
