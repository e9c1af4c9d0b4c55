// decoded: a data set each of whose samples is decoded once, and then comes from a file beside the
// index, in this run and its next starts: `cache: {type: decoded}`.
//
// The file is filled by whoever reads: the processes that decode, which nothing but their own end
// can harm. What a sample is does not depend on whether it comes from there.
//
// Threads, blocking: as the set itself.
#pragma once

#include <memory>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

// kInvalidArgument where `cache` does not go with the set's other settings.
Status validate_cache(const DatasetRequest& request);

// The file of this set, as DecodedCacheFile::make(); where the set wants none, one of before is removed.
Status create_decoded_cache(const DatasetRequest& request, const Dataset& dataset,
                            const files::ScanProgress& progress);

// The set with its file; the set itself where it wants none, or where the file cannot be opened, which
// is logged: its samples are then decoded each time.
Result<std::unique_ptr<Dataset>> with_decoded_cache(const DatasetRequest& request,
                                                    std::unique_ptr<Dataset> dataset);

}  // namespace stoker::data::cache
