#include "shared/data/cache/memory_cached_dataset.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/files/file_change_detector.h"
#include "shared/data/files/file_reader.h"

namespace stoker::data::cache {
namespace {

// SampleCache: memory for the tensors of all samples of a dataset. Each sample is stored once.
//
// Threads:   every method may be called from any thread. Lock-free: a sample becomes visible when
//            it is complete.
// Ownership: owns a memory mapping, in which only the pages of stored samples are allocated.
// Errors:    try_create(): null if there is not enough address space.
class SampleCache {
 public:
  // `tensor_bytes`: size of each tensor of a sample.
  static std::unique_ptr<SampleCache> try_create(uint64_t samples,
                                                 std::vector<size_t> tensor_bytes);
  // The memory needed; UINT64_MAX if it overflows.
  static uint64_t bytes_for(uint64_t samples, std::span<const size_t> tensor_bytes);
  ~SampleCache();
  SampleCache(const SampleCache&) = delete;
  SampleCache& operator=(const SampleCache&) = delete;

  bool has(uint64_t sample) const {
    return states_[sample].load(std::memory_order_acquire) == kPresent;
  }
  // fetch() prefetches a sample into the processor cache; best called samples_to_fetch_ahead()
  // samples before its take().
  size_t samples_to_fetch_ahead() const;
  // Always inlined: GCC takes a function that only prefetches for one without effect and removes its
  // calls.
  [[gnu::always_inline]] void fetch(uint64_t sample) const {
    constexpr size_t kCacheLine = 64;
    constexpr size_t kMaxLines = 65;  // per sample; the hardware prefetcher covers the rest
    const std::byte* const slot = slot_at(sample);
    const size_t bytes = std::min(sample_bytes_, kMaxLines * kCacheLine);
    for (size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(slot + at);
  }
  // Copies a sample that has() into `outputs`.
  void take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // Stores a sample; does nothing if it is present or another thread is storing it.
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
  // The thread that stores a sample changes kAbsent to kLoading, then, after copying, to kPresent
  // (release).
  const std::unique_ptr<std::atomic<uint8_t>[]> states_;
};

// A shorter distance is too late for small samples; with a longer one, large samples are evicted
// again before use.
constexpr size_t kFetchAhead = 4096;  // bytes

size_t sum_of(std::span<const size_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

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
  // Samples are accessed in random order, so with small pages each access would miss the TLB.
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

class MemoryCachedDataset final : public DatasetDecorator, public SampleFiles {
 public:
  MemoryCachedDataset(std::unique_ptr<Dataset> dataset, std::unique_ptr<SampleCache> memory,
                      std::vector<files::FileTable> files)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        memory_(std::move(memory)),
        change_detector_(std::move(files)),
        info_(dataset_->info()) {
    if (info_.maybe_files != nullptr) info_.maybe_files = this;
  }

  const DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    if (!may_take()) return dataset_->read(sample, random_key, outputs);
    if (memory_->has(sample)) {
      memory_->take(sample, outputs);
      return {};
    }
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, random_key, outputs));
    if (files::FileReader::check_reads().ok()) memory_->put(sample, outputs);
    return {};
  }

  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    if (!may_take()) return dataset_->read_batch(samples, rows);
    RowOutputs outputs(rows, samples.size());
    for (size_t done = 0; done < samples.size();) {
      done += take_rows(samples, done, outputs);
      const size_t end = next_kept(samples, done);
      if (done == end) continue;
      const BatchReadResult read =
          dataset_->read_batch(samples.subspan(done, end - done), outputs.of(done, end - done));
      for (size_t i = done; i < done + read.good; ++i)
        memory_->put(samples[i].sample, outputs.of(i));
      done += read.good;
      if (!read.status.ok()) return {.good = done, .status = read.status};
    }
    return {.good = samples.size(), .status = {}};
  }

  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    if (!memory_->has(sample)) dataset_->info().maybe_files->prefetch(sample, bytes);
  }

 private:
  bool may_take() const { return change_detector_.is_unchanged(); }

  // Copies consecutive samples from `first` that are in memory; returns their number.
  size_t take_rows(std::span<const SampleReadRequest> samples, size_t first,
                   RowOutputs& outputs) const {
    size_t i = first;
    const size_t ahead = memory_->samples_to_fetch_ahead();
    for (; i < samples.size() && memory_->has(samples[i].sample); ++i) {
      if (i + ahead < samples.size()) memory_->fetch(samples[i + ahead].sample);
      memory_->take(samples[i].sample, outputs.of(i));
    }
    return i - first;
  }
  size_t next_kept(std::span<const SampleReadRequest> samples, size_t first) const {
    const auto found =
        std::find_if(samples.begin() + static_cast<ptrdiff_t>(first), samples.end(),
                     [this](const SampleReadRequest& each) { return memory_->has(each.sample); });
    return static_cast<size_t>(found - samples.begin());
  }

  const std::unique_ptr<Dataset> dataset_;
  const std::unique_ptr<SampleCache> memory_;          // synchronized internally
  mutable files::FileChangeDetector change_detector_;  // synchronized internally
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> with_memory_cache(std::unique_ptr<Dataset> dataset,
                                           std::vector<files::FileTable> files,
                                           files::MemoryBudget& budget) {
  assert(dataset->max_length() == 0);
  std::vector<size_t> tensor_bytes;
  for (const TensorSpec& tensor : dataset->spec()) tensor_bytes.push_back(tensor.bytes());
  const uint64_t bytes = SampleCache::bytes_for(dataset->size(), tensor_bytes);
  if (!budget.try_take(bytes)) return dataset;
  auto memory = SampleCache::try_create(dataset->size(), std::move(tensor_bytes));
  if (!memory) {
    budget.release(bytes);
    return dataset;
  }
  return std::make_unique<MemoryCachedDataset>(std::move(dataset), std::move(memory),
                                               std::move(files));
}

}  // namespace stoker::data::cache
