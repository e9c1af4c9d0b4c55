// make_record_dataset: builds a dataset from a SampleSpec and the RecordReader of a format.
//
// Threads: functions of their arguments.
// Errors:  kInvalidArgument, kCorrupt; the message contains the setting.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/record_reader.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/sample_range.h"

namespace stoker::data::record {

// For DatasetFormatOps::fingerprint_text of formats whose records have named values.
Result<std::string> record_fingerprint_text(std::string_view format, const DatasetRequest& request);

// Applies the split of the request to the records, or to the bytes of a text stream.
Result<std::unique_ptr<Dataset>> make_record_dataset(const DatasetRequest& request, SampleSpec spec,
                                                     std::string fingerprint,
                                                     std::unique_ptr<RecordReader> records);
// Uses the records of `range`.
std::unique_ptr<Dataset> make_record_dataset(SampleSpec spec, std::string fingerprint,
                                             std::unique_ptr<RecordReader> records,
                                             SampleRange range);

}  // namespace stoker::data::record
