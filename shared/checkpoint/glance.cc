#include "shared/checkpoint/glance.h"

#include <sys/stat.h>

#include <algorithm>

#include "shared/base/file.h"
#include "shared/base/sha256.h"

namespace stoker::checkpoint {
namespace {

// A file that is not there, or is none, is the checkpoint's damage.
Result<std::string> read_part(const std::string& path, uint64_t max_bytes) {
  auto text = read_file(path, max_bytes);
  const Code code = text.status().code();
  if (code == Code::kNotFound || code == Code::kInvalidArgument)
    return Status(Code::kCorrupt, text.status().message());
  return text;
}

Status check_size(const WrittenFile& file, const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return Status(Code::kCorrupt, path + ": missing");
  if (static_cast<uint64_t>(facts.st_size) == file.bytes) return {};
  return Status(Code::kCorrupt, path + ": has " + std::to_string(facts.st_size) + " bytes, " +
                                    std::to_string(file.bytes) + " were committed");
}

}  // namespace

Status compare_lists(const Manifest& manifest, const std::vector<Sum>& sums,
                     const std::string& sums_path) {
  if (sums.size() != manifest.files.size() + 1)
    return Status(Code::kCorrupt, sums_path + ": does not name the files of the manifest");
  for (const WrittenFile& file : manifest.files) {
    const auto sum = std::ranges::find(sums, file.name, &Sum::name);
    if (sum == sums.end() || sum->sha256 != file.sha256)
      return Status(Code::kCorrupt, sums_path + ": differs from the manifest at " + file.name);
  }
  return {};
}

Result<Glance> glance_at(const std::string& checkpoint_path) {
  const std::string sums_path = join_path(checkpoint_path, kSumsName);
  const std::string manifest_path = join_path(checkpoint_path, kManifestName);
  STOKER_ASSIGN_OR_RETURN(const std::string sums_text, read_part(sums_path, kMaxSumsBytes));
  STOKER_ASSIGN_OR_RETURN(const std::vector<Sum> sums, parse_sums(sums_text, sums_path));
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_part(manifest_path, kMaxManifestBytes));
  Glance glance{.manifest_sha256 = sha256_hex(text)};
  const auto sum = std::ranges::find(sums, kManifestName, &Sum::name);
  if (sum == sums.end() || sum->sha256 != glance.manifest_sha256)
    return Status(Code::kCorrupt, manifest_path + ": is not what SHA256SUMS says");
  STOKER_ASSIGN_OR_RETURN(glance.manifest, parse_manifest(text, manifest_path));
  STOKER_RETURN_IF_ERROR(compare_lists(glance.manifest, sums, sums_path));
  for (const WrittenFile& file : glance.manifest.files)
    STOKER_RETURN_IF_ERROR(check_size(file, join_path(checkpoint_path, file.name)));
  return glance;
}

}  // namespace stoker::checkpoint
