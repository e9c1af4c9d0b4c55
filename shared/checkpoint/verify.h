// quick_check: what a checkpoint says of itself, and whether its files are there in the size that it
// says; without reading a tensor, and without holding it as a reader does.
//
// Threads: any; no state.
// Errors:  kCorrupt: a file is missing or has another size, the lists are not what was written, or
//          differ. kNotFound: the directory is gone. kMismatch: a newer format. kIoError.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"

namespace stoker::checkpoint {

inline constexpr uint64_t kMaxChecksumsBytes = 64 << 10;
inline constexpr uint64_t kMaxManifestBytes = 16 << 20;

struct QuickCheck {
  Manifest manifest;
  std::string manifest_sha256;
};

Result<QuickCheck> quick_check(const std::string& checkpoint_path);

// The manifest's list and the sums are two witnesses of the same files. kCorrupt where they differ.
Status compare_lists(const Manifest& manifest, const std::vector<Checksum>& sums,
                     const std::string& checksums_path);

}  // namespace stoker::checkpoint
