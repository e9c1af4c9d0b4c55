// make_stream_dataset: what is known of the samples of a stream before they are read: tensors, classes
// and the fingerprint of the source.
//
// The samples have no index. They are numbered in the order of training; their number is unknown, and
// kStreamSize stands for it. Only a StreamFeed reads them.
//
// Threads:  as Dataset.
// Blocking: for the disk, while the files of a pattern are listed.
// Errors:   those of StreamSource::of() and RecordDecoder::make(). read(): kInternal.
#pragma once

#include <cstdint>
#include <memory>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"

namespace stoker::data::pipeline {

inline constexpr uint64_t kStreamSize = uint64_t{1} << 60;  // more than can be read

// `request.config.stream` must be set.
Result<std::unique_ptr<Dataset>> make_stream_dataset(const DatasetRequest& request);

}  // namespace stoker::data::pipeline
