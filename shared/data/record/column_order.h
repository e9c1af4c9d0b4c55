// with_column_order: gives the input and the target of a dataset the columns of another one, by name.
//
// Threads: functions of their arguments.
// Errors:  kMismatch, with the names of both and those that only one has: the columns differ, or cannot be
//          reordered.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

// The columns that input and target must have: those of the dataset `of`.
struct ColumnOrder {
  std::string of;  // "data.train"
  std::vector<std::string> input, target;
};

// Wraps `data`, whose key is `key` ("data.val") and whose configuration `config`, so that its input and
// target have the columns of `wanted` in their order. Nothing to do if one of both has no named columns.
// If `config` names the columns and not one of them is in `wanted`, they are meant to be those of `wanted`, in
// the order of the list, which is logged. With some equal names, a place in the list says nothing.
Result<std::unique_ptr<Dataset>> with_column_order(const ColumnOrder& wanted,
                                                   const std::string& key,
                                                   const config::DatasetConfig& config,
                                                   std::unique_ptr<Dataset> data);

}  // namespace stoker::data::record
