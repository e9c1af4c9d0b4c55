// picture_pack: `cache: {type: packed}` of image_folder and image_list: all of its files in one, made
// with the index; as they are, or with restart markers in its JPEGs, so that a part of them is decoded
// sooner.
//
// Blocking, errors: as build_pack(). Inserting markers computes on all processors.
#pragma once

#include <cstdint>

#include "shared/base/status.h"
#include "shared/dataset/format.h"

namespace stoker::dataset {

inline constexpr uint64_t kMaxImageFileBytes = uint64_t{256} << 20;  // bytes

bool is_packed(const DatasetRequest& request);

// The facts, with the pack where the set wants one. A pack of before, which nothing reads any more,
// is removed.
Result<IndexMetadata> pack_images(const DatasetRequest& request, const FileTable& files,
                                  IndexMetadata metadata, const ScanProgress& progress);

}  // namespace stoker::dataset
