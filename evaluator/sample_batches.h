// SampleBatches: reads the samples of a dataset in batches, as tensors in reusable host memory.
//
// Samples come in index order. Variable-length sequences are grouped by feed.bucket_boundaries, in
// index order within each bucket. Each sample is read exactly once and padded as in training,
// regardless of eval.batch_size. Quarantined samples are excluded from the time they are found.
//
// Threads:   one.
// Ownership: the dataset must outlive this object.
// Errors:    read(): those of Dataset::read() of a sample that is not quarantined; std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
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
  // Whether the dataset has quarantined this sample; asked after a read() of it failed.
  using IsQuarantined = std::function<bool(uint64_t sample)>;

  // Batches of at most `batch` of the chosen samples; `chosen` must not be empty.
  SampleBatches(const data::Dataset& data, const Subset& subset, uint64_t batch,
                std::span<const int64_t> buckets, IsQuarantined is_quarantined = {});

  size_t size() const { return batches_.size(); }  // number of batches
  uint64_t samples() const { return subset_.size(); }
  uint64_t quarantined() const { return excluded_.size(); }  // of these; not read again
  uint64_t first_position(size_t number) const { return batches_[number].first; }
  // Dataset index of the sample at `position`, counted over all batches.
  uint64_t sample_at(uint64_t position) const {
    return order_.empty() ? subset_.sample(position) : order_[position];
  }
  // Dataset index of the i-th sample that is not excluded.
  uint64_t evaluated_sample(uint64_t i) const;
  // The tensors refer to `memory` and are valid until it changes. No tensors: every sample of the
  // batch is excluded.
  Result<task::Batch> read(size_t number, Memory& memory);

 private:
  struct Batch {
    uint64_t first = 0;  // position
    uint64_t count = 0;
    uint64_t length = 0;  // padded length of its samples
  };
  void add_batches(uint64_t samples, uint64_t batch, uint64_t length);
  // Reads the samples of the batch that are not excluded into consecutive rows and returns their
  // number.
  Result<size_t> read_rows(const Batch& batch, std::span<const std::span<std::byte>> rows);

  const data::Dataset& data_;
  const Subset subset_;
  std::vector<Batch> batches_;
  std::vector<uint64_t> order_;  // dataset index by position; empty: index order
  const IsQuarantined is_quarantined_;
  std::set<uint64_t> excluded_;  // positions
};

}  // namespace stoker::evaluator
