#include "shared/checkpoint/quick_check.h"

#include <sys/stat.h>

#include <algorithm>

#include "shared/base/file.h"
#include "shared/base/sha256.h"

namespace stoker::checkpoint {
namespace {

// A file that is not there, or is none, is the checkpoint's damage.
Result<std::string> read_part(const std::string& path, uint64_t max_bytes) {
  auto text = read_file(path, max_bytes);
  const StatusCode code = text.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kInvalidArgument)
    return Status(StatusCode::kCorrupt, text.status().message());
  return text;
}

Status check_size(const WrittenFile& file, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return Status(StatusCode::kCorrupt, path + ": missing");
  if (static_cast<uint64_t>(info.st_size) == file.bytes) return {};
  return Status(StatusCode::kCorrupt, path + ": has " + std::to_string(info.st_size) + " bytes, " +
                                          std::to_string(file.bytes) + " were committed");
}

}  // namespace

Status compare_lists(const Manifest& manifest, const std::vector<Checksum>& sums,
                     const std::string& checksums_path) {
  if (sums.size() != manifest.files.size() + 1)
    return Status(StatusCode::kCorrupt,
                  checksums_path + ": does not name the files of the manifest");
  for (const WrittenFile& file : manifest.files) {
    const auto sum = std::ranges::find(sums, file.name, &Checksum::name);
    if (sum == sums.end() || sum->sha256 != file.sha256)
      return Status(StatusCode::kCorrupt,
                    checksums_path + ": differs from the manifest at " + file.name);
  }
  return {};
}

Result<QuickCheck> quick_check(const std::string& checkpoint_path) {
  const std::string checksums_path = join_path(checkpoint_path, kChecksumsName);
  const std::string manifest_path = join_path(checkpoint_path, kManifestName);
  STOKER_ASSIGN_OR_RETURN(const std::string sums_text,
                          read_part(checksums_path, kMaxChecksumsBytes));
  STOKER_ASSIGN_OR_RETURN(const std::vector<Checksum> sums,
                          parse_checksums(sums_text, checksums_path));
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_part(manifest_path, kMaxManifestBytes));
  QuickCheck check{.manifest_sha256 = sha256_hex(text)};
  const auto sum = std::ranges::find(sums, kManifestName, &Checksum::name);
  if (sum == sums.end() || sum->sha256 != check.manifest_sha256)
    return Status(StatusCode::kCorrupt, manifest_path + ": is not what SHA256SUMS says");
  STOKER_ASSIGN_OR_RETURN(check.manifest, parse_manifest(text, manifest_path));
  STOKER_RETURN_IF_ERROR(compare_lists(check.manifest, sums, checksums_path));
  for (const WrittenFile& file : check.manifest.files)
    STOKER_RETURN_IF_ERROR(check_size(file, join_path(checkpoint_path, file.name)));
  return check;
}

}  // namespace stoker::checkpoint
