// picture_pack: `cache: {type: packed}` of image_folder and image_list: all of its files in one, made
// with the index; as they are, or with restart markers in its JPEGs, so that a part of them is decoded
// sooner.
//
// Blocking, errors: as pack_files(). Inserting markers computes on all processors.
#pragma once

#include <cstdint>

#include "shared/base/status.h"
#include "shared/dataset/kind.h"

namespace stoker::dataset {

inline constexpr uint64_t kMaxPictureFile = uint64_t{256} << 20;  // bytes

bool is_packed(const SetRequest& set);

// The facts, with the pack where the set wants one. A pack of before, which nothing reads any more,
// is removed.
Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress);

}  // namespace stoker::dataset
