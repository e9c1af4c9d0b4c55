// SHA256SUMS: the hashes of a checkpoint's files, as coreutils' sha256sum writes and checks them.
//
// Threads: any; no state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::checkpoint {

inline constexpr char kChecksumsName[] = "SHA256SUMS";
inline constexpr char kManifestName[] = "manifest.json";

struct Checksum {
  std::string sha256;
  std::string name;
};

std::string format_checksums(const std::vector<Checksum>& sums);
// kCorrupt, with the line: anything that format_checksums() does not write, a name twice, no line at all.
Result<std::vector<Checksum>> parse_checksums(std::string_view text,
                                              const std::string& path_in_messages);

bool is_sha256(std::string_view text);
// A plain file name: letters, digits, '.', '_' and '-', not beginning with '.'.
bool is_file_name(std::string_view name);

}  // namespace stoker::checkpoint
