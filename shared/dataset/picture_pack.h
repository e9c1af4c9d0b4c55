// picture_pack: `cache: packed` and `cache: rewritten` of kind `images`: all of its files in one, made
// with the index; as they are, or its JPEGs rewritten so that a part of them is decoded sooner.
//
// Blocking, errors: as pack_files(). Rewriting computes on all processors.
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
