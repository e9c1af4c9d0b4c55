// with_column_order: gives the input of a dataset the columns of another one, by name.
//
// Threads: functions of their arguments.
// Errors:  kMismatch, with the names of both: the columns differ, or cannot be reordered.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

// The columns that the input must have: those of the dataset `of`.
struct ColumnOrder {
  std::string of;  // "data.train"
  std::vector<std::string> columns;
};

// Wraps `data`, whose key is `key` ("data.val"), so that its input has the columns of `wanted` in their
// order. Nothing to do if one of both has no named columns. `are_given`: fields.input names the
// columns of `data`; then other names are meant to be those, in the order of the list, and are logged.
Result<std::unique_ptr<Dataset>> with_column_order(const ColumnOrder& wanted,
                                                   const std::string& key, bool are_given,
                                                   std::unique_ptr<Dataset> data);

}  // namespace stoker::data::record
