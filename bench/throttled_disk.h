// ThrottledDisk: simulates a high-latency disk under a dataset. The bytes of each sample arrive
// after a delay, and requests run in parallel without limit, as with a network file system or an
// object store.
//
// Threads:   as Dataset.
// Blocking:  the calling thread sleeps for the delay.
// Ownership: the inner dataset, which has files, must outlive this object.
#pragma once

#include <chrono>
#include <thread>

#include "shared/data/dataset_decorator.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::bench {

class ThrottledDisk final : public data::DatasetDecorator, public data::SampleFiles {
 public:
  ThrottledDisk(const data::Dataset& inner, std::chrono::microseconds delay)
      : DatasetDecorator(inner), delay_(delay), info_(inner.info()) {
    info_.maybe_files = this;
  }

  const data::DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    const bool is_prefetched = data::files::PrefetchedBytes::current() != nullptr;
    if (!is_prefetched) std::this_thread::sleep_for(delay_);
    return inner().read(sample, random_key, outputs);
  }
  void prefetch(uint64_t sample, data::files::PrefetchedBytes& bytes) const override {
    std::this_thread::sleep_for(delay_);
    inner().info().maybe_files->prefetch(sample, bytes);
  }

 private:
  const std::chrono::microseconds delay_;
  data::DatasetInfo info_;
};

}  // namespace stoker::bench
