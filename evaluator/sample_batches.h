// SampleBatches: the samples of a set in batches, as tensors in host memory that is reused.
//
// In the order of their numbers; sequences of various lengths bucket by bucket, as feed.bucket_boundaries has
// them, in that order within each. So each sample is there once and padded as in training, whatever
// eval.batch_size is.
//
// Threads: one.
// Owner:   the data set must outlive this object.
// Errors:  read(): those of Dataset::read(); std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/subset.h"
#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/task/task.h"

namespace stoker::evaluator {

class SampleBatches {
 public:
  // A batch's bytes, of each tensor. As large as the largest batch that was read into it.
  using Memory = std::vector<std::vector<std::byte>>;

  // Those that are chosen, at least one, in batches of at most `batch`.
  SampleBatches(const dataset::Dataset& data, const Subset& chosen, uint64_t batch,
                std::span<const int64_t> buckets);

  size_t size() const { return batches_.size(); }  // batches
  uint64_t samples() const { return chosen_.size(); }
  uint64_t first_position(size_t number) const { return batches_[number].first; }
  // The sample that is read as the place-th, counted over all batches.
  uint64_t sample_at(uint64_t position) const {
    return order_.empty() ? chosen_.sample(position) : order_[position];
  }
  // Tensors in `memory`, which hold until it changes.
  Result<task::Batch> read(size_t number, Memory& memory) const;

 private:
  struct Batch {
    uint64_t first = 0;  // place
    uint64_t count = 0;
    uint64_t length = 0;  // that its samples are padded to
  };
  void cut(uint64_t samples, uint64_t batch, uint64_t length);

  const dataset::Dataset& data_;
  const Subset chosen_;
  std::vector<Batch> batches_;
  std::vector<uint64_t> order_;  // empty: by their numbers
};

}  // namespace stoker::evaluator
