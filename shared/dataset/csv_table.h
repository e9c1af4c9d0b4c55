// CsvTable: what the first rows of a set's files say about its columns.
//
// Threads: a value.
// Errors:  kCorrupt (a header that is not one, files with different headers), kInvalidArgument (a
//          setting names a column that is not there, or that is there twice).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/dataset/format.h"
#include "shared/dataset/record_fields.h"

namespace stoker::dataset {

struct CsvTable {
  std::vector<std::string> columns;  // of the header, or of the setting

  // The settings of records with the inputs that they leave out: every column but the label or the
  // targets.
  Result<config::RecordConfig> with_inputs(const DatasetRequest& request) const;
  // The column of each name of the fields. kInvalidArgument also where the shape is not that of so
  // many columns.
  Result<std::vector<size_t>> indices(const DatasetRequest& request,
                                      const RecordFields& fields) const;
};

// The fields of a header row; a line end or another control character in a name counts as a space.
Result<std::vector<std::string>> csv_header(std::string_view row, char delimiter);

}  // namespace stoker::dataset
