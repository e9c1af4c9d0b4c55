// SplitFraction: the fraction [from, to) of the data that one named dataset uses (data.NAME.split). For
// ranges of positions; other parts are chosen from all samples (sample_split.h).
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

// The shards inside `range`, given the end of each shard (`ends`, not decreasing). The result is
// relative to the start of the range and strictly increasing; its last element is the size of the
// range.
std::vector<uint64_t> shard_ends_within(std::span<const uint64_t> ends, const SampleRange& range);

struct SplitFraction {
  double from = 0.0;
  double to = 1.0;

  // Everything unless the part is a range of positions. kInvalidArgument unless 0 <= from < to <= 1.
  static Result<SplitFraction> of(const DatasetRequest& request);
  // Adjacent splits ([0, 0.9] and [0.9, 1]) neither overlap nor omit a sample. A border that is no
  // integer is rounded down if its fraction is below 1 - `rounding`, which is below 1.
  SampleRange of_count(uint64_t count, double rounding = 0) const;
  std::string to_text() const;  // "split=0:0.9"; equal splits have equal texts
};

// The range of `samples` samples that the dataset uses: at least one, or kInvalidArgument.
Result<SampleRange> split_range(const DatasetRequest& request, uint64_t samples);

// with_sample_range: limits a dataset to the samples selected by data.NAME.skip_samples and
// data.NAME.max_samples.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming the key: no sample is left.

// The selected samples out of `size`; all if neither is set.
Result<SampleRange> selected_range(const DatasetRequest& request, uint64_t size);

// Returns `whole` itself if neither is set. The limited dataset has its own fingerprint.
Result<std::unique_ptr<Dataset>> with_sample_range(const DatasetRequest& request,
                                                   std::unique_ptr<Dataset> whole);

// The samples with these numbers, increasing. kCorrupt if they are not numbers of `whole`: they come from
// an index.
Result<std::unique_ptr<Dataset>> with_selected_samples(const DatasetRequest& request,
                                                       std::unique_ptr<Dataset> whole,
                                                       std::vector<uint64_t> samples);

}  // namespace stoker::data
