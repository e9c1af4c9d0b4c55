#include "shared/dataset/memory_cached_dataset.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/dataset/dataset_decorator.h"
#include "shared/dataset/file_change_detector.h"
#include "shared/dataset/row_outputs.h"
#include "shared/dataset/sample_cache.h"

namespace stoker::dataset {
namespace {

class MemoryCachedDataset final : public DatasetDecorator {
 public:
  MemoryCachedDataset(std::unique_ptr<Dataset> dataset, std::vector<FileTable> files)
      : DatasetDecorator(*dataset),
        dataset_(std::move(dataset)),
        change_detector_(std::move(files)) {}

  void enable_memory_cache(uint64_t& budget) const override {
    if (maybe_memory_) return;
    std::vector<size_t> tensor_bytes;
    for (const TensorSpec& tensor : spec()) tensor_bytes.push_back(tensor.bytes());
    const uint64_t bytes = SampleCache::bytes_for(size(), tensor_bytes);
    if (bytes > budget) return dataset_->enable_memory_cache(budget);  // a part of each, perhaps
    maybe_memory_ = SampleCache::try_create(size(), std::move(tensor_bytes));
    if (maybe_memory_) budget -= bytes;
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    if (!may_take()) return dataset_->read(sample, random_key, outputs);
    if (maybe_memory_->has(sample)) {
      maybe_memory_->take(sample, outputs);
      return {};
    }
    STOKER_RETURN_IF_ERROR(dataset_->read(sample, random_key, outputs));
    maybe_memory_->put(sample, outputs);
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
        maybe_memory_->put(samples[i].sample, outputs.of(i));
      done += read.good;
      if (!read.status.ok()) return {.good = done, .status = read.status};
    }
    return {.good = samples.size(), .status = {}};
  }

  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    if (!maybe_memory_ || !maybe_memory_->has(sample)) dataset_->prefetch(sample, bytes);
  }

 private:
  bool may_take() const { return maybe_memory_ && change_detector_.is_unchanged(); }

  // Those from `first` on that are in memory, up to the first that is not; how many.
  size_t take_rows(std::span<const SampleReadRequest> samples, size_t first,
                   RowOutputs& outputs) const {
    size_t i = first;
    const size_t ahead = maybe_memory_->samples_to_fetch_ahead();
    for (; i < samples.size() && maybe_memory_->has(samples[i].sample); ++i) {
      if (i + ahead < samples.size()) maybe_memory_->fetch(samples[i + ahead].sample);
      maybe_memory_->take(samples[i].sample, outputs.of(i));
    }
    return i - first;
  }
  size_t next_kept(std::span<const SampleReadRequest> samples, size_t first) const {
    const auto found = std::find_if(
        samples.begin() + static_cast<ptrdiff_t>(first), samples.end(),
        [this](const SampleReadRequest& each) { return maybe_memory_->has(each.sample); });
    return static_cast<size_t>(found - samples.begin());
  }

  const std::unique_ptr<Dataset> dataset_;

  // Set before the first read; own synchronisation.
  mutable std::unique_ptr<SampleCache> maybe_memory_;
  mutable FileChangeDetector change_detector_;
};

}  // namespace

std::unique_ptr<Dataset> with_memory_cache(std::unique_ptr<Dataset> dataset,
                                           std::vector<FileTable> files) {
  return std::make_unique<MemoryCachedDataset>(std::move(dataset), std::move(files));
}

}  // namespace stoker::dataset
