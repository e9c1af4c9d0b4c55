// with_sample_range: the part of a data set's samples that data.NAME.skip_samples and data.NAME.max_samples
// leave.
//
// Threads: as Dataset.
// Errors:  kInvalidArgument, naming the key: no sample is left.
#pragma once

#include <cstdint>
#include <memory>

#include "shared/base/status.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/format.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {

// Which samples of so many: all where neither is set.
Result<SampleRange> selected_range(const DatasetRequest& request, uint64_t size);

// `whole` itself where neither is set. The part has a fingerprint of its own.
Result<std::unique_ptr<Dataset>> with_sample_range(const DatasetRequest& request,
                                                   std::unique_ptr<Dataset> whole);

}  // namespace stoker::dataset
