// open_dataset: opens a named dataset of the configuration with its format, transforms and cache,
// using an index that is built by a single scan.
//
// Threads:  functions of their arguments; one process at a time builds an index in a directory.
// Blocking: for the disk, and for another process that builds an index in this directory. Scanning,
//           indexing and building a cache can take hours; the progress is reported to `progress`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/data/files/scan.h"
#include "shared/data/sandbox.h"
#include "shared/data/source.h"

namespace stoker::data::pipeline {

// Scans the files and opens the dataset; the index is read from `index_dir`, or built there if it
// does not exist or the files or settings have changed. Errors contain the path: kNotFound (no such
// file or folder, or no matching file in it: "data.train.path: … holds no file that matches
// '*.h'"), kPermission, kInvalidArgument (the config), kCorrupt (a file does not have this format),
// kIoError, kCancelled (`progress` has thrown files::ScanStopped). `dataset_name` ("train") is used
// in messages and in the name of the index file.
// A mixture or concat also opens its components, all of which must be in `datasets`. Of a stream
// nothing is scanned; the second and third function reject it.
//
// `cache_bytes`: memory for samples that are cheaper to keep than to read again. A dataset of such
// samples caches them after their first read if all of them fit; the components of a mixture take
// their memory in order.
//
// `maybe_sandbox`: rewrites images of a packed cache and reads the samples that a new index is
// validated with; its errors are those of opening. Null: this process does.
Result<Source> open_source(const std::string& dataset_name, const config::DatasetConfigs& datasets,
                           const std::string& index_dir, const files::ScanProgress& progress,
                           uint64_t cache_bytes = 0, const Sandbox* maybe_sandbox = nullptr);
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress,
                                              uint64_t cache_bytes = 0,
                                              const Sandbox* maybe_sandbox = nullptr);
// For a single dataset, which is neither a mixture nor a concat.
Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress,
                                              uint64_t cache_bytes = 0,
                                              const Sandbox* maybe_sandbox = nullptr);

// Opens the dataset with the index that open_dataset() wrote, without another scan: the same
// samples, or an error. kNotFound: there is no index yet. kMismatch: the index was built with other
// settings, or the fingerprint is not `fingerprint`; an empty `fingerprint` accepts any.
Result<Source> open_indexed_source(const std::string& dataset_name,
                                   const config::DatasetConfigs& datasets,
                                   const std::string& index_dir, const std::string& fingerprint,
                                   uint64_t cache_bytes = 0);
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint,
                                              uint64_t cache_bytes = 0);
Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint,
                                              uint64_t cache_bytes = 0);

}  // namespace stoker::data::pipeline
