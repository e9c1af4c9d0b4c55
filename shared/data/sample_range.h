// SplitFraction: the part [from, to) of a data set that one named set takes.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"

namespace stoker::data {

struct SampleRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
};

// Of shards that end after `ends` samples (never falling), those that lie in the part: ends counted
// from its beginning, strictly rising, the last one its size.
std::vector<uint64_t> shard_ends_within(std::span<const uint64_t> ends, const SampleRange& range);

struct SplitFraction {
  double from = 0.0;
  double to = 1.0;

  // kInvalidArgument unless 0 <= from < to <= 1.
  static Result<SplitFraction> of(const DatasetRequest& request);
  // Two sets that share a border ([0, 0.9] and [0.9, 1]) share neither a sample nor leave one out.
  SampleRange of_count(uint64_t count) const;
  std::string to_text() const;  // "split=0:0.9"; equal splits give equal texts
};

// The part of `samples` samples that the set takes: at least one, or kInvalidArgument.
Result<SampleRange> split_range(const DatasetRequest& request, uint64_t samples);

// Shortest is not the point: equal numbers give equal texts, different ones different texts.
std::string format_double_exact(double value);

// with_sample_range: the part of a data set's samples that data.NAME.skip_samples and data.NAME.max_samples
// leave.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming the key: no sample is left.

// Which samples of so many: all where neither is set.
Result<SampleRange> selected_range(const DatasetRequest& request, uint64_t size);

// `whole` itself where neither is set. The part has a fingerprint of its own.
Result<std::unique_ptr<Dataset>> with_sample_range(const DatasetRequest& request,
                                                   std::unique_ptr<Dataset> whole);

}  // namespace stoker::data
