// SHA256SUMS: the hashes of a checkpoint's files, as coreutils' sha256sum writes and checks them.
//
// Threads: any; no state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::checkpoint {

inline constexpr char kSumsName[] = "SHA256SUMS";
inline constexpr char kManifestName[] = "manifest.json";

struct Sum {
  std::string sha256;
  std::string name;
};

std::string to_sums(const std::vector<Sum>& sums);
// kCorrupt, with the line: anything that to_sums() does not write, a name twice, no line at all.
Result<std::vector<Sum>> parse_sums(std::string_view text, const std::string& path_in_messages);

bool is_sha256(std::string_view text);
// A plain file name: letters, digits, '.', '_' and '-', not beginning with '.'.
bool is_file_name(std::string_view name);

}  // namespace stoker::checkpoint
