// validate_refresh: checks that data was only added to a dataset, and that no file was removed,
// shortened or modified.
//
// Threads:  functions of their arguments and the files.
// Blocking: reads a few bytes of each file that became longer.
// Errors:   kMismatch: another change than added data; the message contains the file. kNotFound,
//           kCorrupt, kIoError: an index or a file cannot be read.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"

namespace stoker::data::pipeline {

// Whether a refresh accepts longer files: existing rows keep their offsets.
bool supports_append(const config::DatasetConfig& dataset);

// Compares the indexes of the datasets `names` in both folders.
Status validate_refresh(const config::DatasetConfigs& datasets,
                        const std::vector<std::string>& names, const std::string& index_dir_before,
                        const std::string& index_dir_after);
// Checks that tensors and classes are equal, so that a model for one dataset accepts the other.
// kMismatch if not.
Status validate_same_schema(const Dataset& before, const Dataset& after);

// The path of the index of dataset `name`.
std::string index_file(const std::string& name, const std::string& index_dir);

}  // namespace stoker::data::pipeline
