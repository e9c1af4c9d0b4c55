// with_decoded_cache: a dataset whose samples are decoded once and then read from a file next to
// the index, in this run and after restarts: `cache: {type: decoded}`.
//
// The file is filled by the processes that decode, so a crash in a decoder affects nothing else. A
// sample has the same bytes with and without the cache.
//
// Threads, blocking: as the dataset.
#pragma once

#include <memory>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

// kInvalidArgument if `cache` cannot be combined with the other settings of the dataset.
Status validate_cache(const DatasetRequest& request);

// Creates the cache file of the dataset with DecodedCacheFile::make(). Without a decoded cache,
// removes an earlier one.
Status create_decoded_cache(const DatasetRequest& request, const Dataset& dataset,
                            const files::ScanProgress& progress);

// The dataset with its cache. Returns `dataset` itself if no decoded cache is configured, or if the
// file cannot be opened; the latter is logged, and samples are then decoded on each read.
Result<std::unique_ptr<Dataset>> with_decoded_cache(const DatasetRequest& request,
                                                    std::unique_ptr<Dataset> dataset);

}  // namespace stoker::data::cache
