// SampleBatches: reads the samples of a dataset in batches, as tensors in reusable host memory.
//
// Samples come in index order. Variable-length sequences are grouped by feed.bucket_boundaries, in
// index order within each bucket. Each sample is read exactly once and padded as in training,
// regardless of eval.batch_size.
//
// Threads:   one.
// Ownership: the dataset must outlive this object.
// Errors:    read(): those of Dataset::read(); std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/subset.h"
#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/task/task.h"

namespace stoker::evaluator {

class SampleBatches {
 public:
  // One buffer per tensor, as large as the largest batch that was read into it.
  using Memory = std::vector<std::vector<std::byte>>;

  // Batches of at most `batch` of the chosen samples; `chosen` must not be empty.
  SampleBatches(const data::Dataset& data, const Subset& subset, uint64_t batch,
                std::span<const int64_t> buckets);

  size_t size() const { return batches_.size(); }  // number of batches
  uint64_t samples() const { return subset_.size(); }
  uint64_t first_position(size_t number) const { return batches_[number].first; }
  // Dataset index of the sample at `position`, counted over all batches.
  uint64_t sample_at(uint64_t position) const {
    return order_.empty() ? subset_.sample(position) : order_[position];
  }
  // The tensors refer to `memory` and are valid until it changes.
  Result<task::Batch> read(size_t number, Memory& memory) const;

 private:
  struct Batch {
    uint64_t first = 0;  // position
    uint64_t count = 0;
    uint64_t length = 0;  // padded length of its samples
  };
  void add_batches(uint64_t samples, uint64_t batch, uint64_t length);

  const data::Dataset& data_;
  const Subset subset_;
  std::vector<Batch> batches_;
  std::vector<uint64_t> order_;  // dataset index by position; empty: index order
};

}  // namespace stoker::evaluator
