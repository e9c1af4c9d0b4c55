// Source: what the formats that read a file or a folder have in common when they look at `path`.
//
// Errors: kNotFound, kPermission, kInvalidArgument, kIoError; each begins with the key,
//         "data.train.path: …".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/format.h"
#include "shared/dataset/scan.h"

namespace stoker::dataset {

// The one file at `path`, or the files below it that match the glob: at least one.
Result<FileTable> scan_source(const DatasetRequest& request, const std::string& glob,
                              const ScanProgress& progress);
// The same for a path that must be a folder.
Result<FolderScan> scan_source_folder(const DatasetRequest& request, const std::string& glob,
                                      const ScanProgress& progress);
// One file that a field of the set names ("path", "labels_path"); appended to `files`.
Status scan_source_file(const DatasetRequest& request, std::string_view field,
                        const std::string& path, FileTable& files);

// sequence.block_size of the formats that cut a stream: at least 1, and small enough that nothing
// overflows.
Result<uint64_t> context_of(const DatasetRequest& request);
Status too_short(const DatasetRequest& request, uint64_t length, std::string_view units);

}  // namespace stoker::dataset
