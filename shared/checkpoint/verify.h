// quick_check: reads the manifest of a checkpoint and verifies that its files exist with the
// recorded sizes. Reads no tensors and takes no lock.
//
// Threads:  any; no state.
// Errors:   kCorrupt: a file is missing or has another size, or the manifest and SHA256SUMS are
//           invalid or differ. kNotFound: the directory does not exist. kMismatch: a newer format.
//           kIoError.
#pragma once

#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"

namespace stoker::checkpoint {

inline constexpr uint64_t kMaxChecksumsBytes = 1 << 20;
inline constexpr uint64_t kMaxManifestBytes = 16 << 20;

struct QuickCheck {
  Manifest manifest;
  std::string manifest_sha256;
};

Result<QuickCheck> quick_check(const std::string& checkpoint_path);

// Compares the files listed in the manifest with those in SHA256SUMS. kCorrupt if they differ.
Status compare_checksums(const Manifest& manifest, const std::vector<Checksum>& sums,
                         const std::string& checksums_path);

}  // namespace stoker::checkpoint
