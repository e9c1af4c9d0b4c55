// dataset files: the files that the settings of a data set name, as all formats with files find them.
//
// Errors: kNotFound, kPermission, kInvalidArgument, kIoError; each begins with the key,
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

// The one file at `path`, or the files below it that match the glob: at least one.
Result<files::FileTable> scan_source(const DatasetRequest& request, const std::string& glob,
                                     const files::ScanProgress& progress);
// The same for a path that must be a folder.
Result<files::FolderScan> scan_source_folder(const DatasetRequest& request, const std::string& glob,
                                             const files::ScanProgress& progress);
// One file that a field of the set names ("path", "labels_path"); appended to `files`.
Status scan_source_file(const DatasetRequest& request, std::string_view field,
                        const std::string& path, files::FileTable& files);

// shard_files: finds the files of a set whose records lie in shards, and refuses what cannot be read
// at random.
//
// Errors: those of scan_source(); kNotFound where the glob names a range ("{000..146}") and one of
//         its files is not there: a set that lacks a shard would be another set.
Result<files::FileTable> scan_shards(const DatasetRequest& request,
                                     const files::ScanProgress& progress);

// kCorrupt, with the remedy, where these are the first bytes of a packed file.
Status reject_packed(std::span<const std::byte> first_bytes);

}  // namespace stoker::data
