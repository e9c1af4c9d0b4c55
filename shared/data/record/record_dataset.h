// RecordDataset: the dataset that a SampleSpec and a format's RecordReader make.
//
// Threads: functions of their arguments.
// Errors:  kInvalidArgument, kCorrupt; each names the setting.
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

// For DatasetFormatOps::fingerprint_text of a format whose records have named values.
Result<std::string> record_fingerprint_text(std::string_view format, const DatasetRequest& request);

// `split` is by records, or by bytes of a stream of texts.
Result<std::unique_ptr<Dataset>> make_record_dataset(const DatasetRequest& request, SampleSpec spec,
                                                     std::string fingerprint,
                                                     std::unique_ptr<RecordReader> records);
// Of these records.
std::unique_ptr<Dataset> make_record_dataset(SampleSpec spec, std::string fingerprint,
                                             std::unique_ptr<RecordReader> records,
                                             SampleRange range);

}  // namespace stoker::data::record
