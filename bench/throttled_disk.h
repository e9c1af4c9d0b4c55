// ThrottledDisk: a data set on a disk that is made up: each sample's bytes come after a delay, and any
// number of them may be asked for at the same time, as of a network or an object store.
//
// Threads:  as Dataset.
// Blocking: whoever asks sleeps for the delay.
// Owner:    the inner data set must outlive this object.
#pragma once

#include <chrono>
#include <thread>

#include "shared/dataset/dataset_decorator.h"
#include "shared/dataset/prefetched_bytes.h"

namespace stoker::bench {

class ThrottledDisk final : public dataset::DatasetDecorator {
 public:
  ThrottledDisk(const dataset::Dataset& inner, std::chrono::microseconds delay)
      : DatasetDecorator(inner), delay_(delay) {}

  Status read(uint64_t sample, const dataset::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    const bool is_there = dataset::PrefetchedBytes::current() != nullptr;
    if (!is_there) std::this_thread::sleep_for(delay_);
    return inner().read(sample, random_key, outputs);
  }
  void prefetch(uint64_t sample, dataset::PrefetchedBytes& bytes) const override {
    std::this_thread::sleep_for(delay_);
    inner().prefetch(sample, bytes);
  }

 private:
  const std::chrono::microseconds delay_;
};

}  // namespace stoker::bench
