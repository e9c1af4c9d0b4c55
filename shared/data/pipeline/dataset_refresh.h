// validate_refresh: whether a data set is the one before with more of it: no file gone, shortened or
// changed.
//
// Threads:  pure but for the files.
// Blocking: a few bytes of each file that became longer are read.
// Errors:   kMismatch: what changed is no growth; names the file. kNotFound, kCorrupt, kIoError: an
//           index, or a file, cannot be read.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"

namespace stoker::data::pipeline {

// Whether a file of such a set may become longer: the rows it had stay where they are.
bool supports_append(const config::DatasetConfig& dataset);

// Of the sets `names`, indexed in both folders, and of what they are opened as.
Status validate_refresh(const config::DatasetConfigs& datasets,
                        const std::vector<std::string>& names, const std::string& index_dir_before,
                        const std::string& index_dir_after);
// Samples of the same tensors and classes: a model that was made for one takes the other.
Status validate_same_schema(const Dataset& before, const Dataset& after);

// The path of the index of set `name`.
std::string index_file(const std::string& name, const std::string& index_dir);

}  // namespace stoker::data::pipeline
