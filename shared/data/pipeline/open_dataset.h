// open_dataset: a named data set of the configuration, put together from its format, transforms and
// cache, through the index of one scan.
//
// Threads:  functions of their arguments; one process at a time writes an index folder.
// Blocking: as the disk does: scanning, indexing and building a cache may take hours, reported to
//           `progress`.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/data/files/scan.h"

namespace stoker::data::pipeline {

// Scans (or finds the scan cached under `index_dir` unchanged) and opens. Errors name the path:
// kNotFound (no such file or folder, or nothing in it that fits: "data.train.path: … holds no file
// that matches '*.h'"), kPermission, kInvalidArgument (the config), kCorrupt (a file is not of this
// kind), kIoError. `dataset_name` ("train") is for messages and for the index file's name.
// A mixture or concat opens its sets as well: it needs all of them.
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress);
// A set that has a format.
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress);

// Opens through the index that open_dataset() left, without looking at the folder again: the same
// samples, or an error. kNotFound: there is no index yet. kMismatch when the samples have another
// fingerprint than `fingerprint`; where that is empty, they are what the index says.
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint);
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint);

}  // namespace stoker::data::pipeline
