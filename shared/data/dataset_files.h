// scan_source: finds the files of a dataset that its settings specify, for all formats with files.
//
// Errors: kNotFound, kPermission, kInvalidArgument, kIoError; each starts with the key,
//         "data.train.path: …".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/scan.h"

namespace stoker::data {

// The single file at `path`, or the files below it that match the glob: at least one.
Result<files::FileTable> scan_source(const DatasetRequest& request, const std::string& glob,
                                     const files::ScanProgress& progress);
// The same if the path must be a folder.
Result<files::FolderScan> scan_source_folder(const DatasetRequest& request, const std::string& glob,
                                             const files::ScanProgress& progress);
// Appends one file, specified by a setting of the dataset ("path", "labels_path"), to `files`.
Status scan_source_file(const DatasetRequest& request, std::string_view field,
                        const std::string& path, files::FileTable& files);

// scan_shards: finds the files of a dataset whose records are in shards.
//
// Errors: those of scan_source(); kNotFound if the glob contains a range ("{000..146}") and one of
//         its files does not exist: without it, the dataset would be a different one.
Result<files::FileTable> scan_shards(const DatasetRequest& request,
                                     const files::ScanProgress& progress);
// That check alone, for the files below a folder. The message has no key.
Status check_ranges(const files::FileTable& files, const std::string& glob);

// Reads the first and last bytes of each file. kCorrupt if one is not text, with the key and the name.
Status check_texts(const DatasetRequest& request, const files::FileTable& files,
                   const files::ScanProgress& progress);

}  // namespace stoker::data
