// shard_files: finds the files of a set whose records lie in shards, and refuses what cannot be read
// at random.
//
// Errors: those of scan_source(); kNotFound where the glob names a range ("{000..146}") and one of
//         its files is not there: a set that lacks a shard would be another set.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/format.h"

namespace stoker::dataset {

Result<FileTable> scan_shards(const DatasetRequest& request, const ScanProgress& progress);

// kCorrupt, with the remedy, where these are the first bytes of a packed file.
Status reject_packed(std::span<const std::byte> first_bytes);

}  // namespace stoker::dataset
