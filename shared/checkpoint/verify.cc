#include "shared/checkpoint/verify.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/base/file_locks.h"
#include "shared/base/hash.h"
#include "shared/base/regular_file.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {
namespace {

// A missing or irregular file means that the checkpoint is corrupt.
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

Status compare_checksums(const Manifest& manifest, const std::vector<Checksum>& sums,
                         const std::string& checksums_path) {
  if (sums.size() != manifest.files.size() + 1)
    return Status(StatusCode::kCorrupt,
                  checksums_path + ": does not list the files of the manifest");
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
    return Status(StatusCode::kCorrupt, manifest_path + ": does not match SHA256SUMS");
  STOKER_ASSIGN_OR_RETURN(check.manifest, parse_manifest(text, manifest_path));
  STOKER_RETURN_IF_ERROR(compare_checksums(check.manifest, sums, checksums_path));
  for (const WrittenFile& file : check.manifest.files)
    STOKER_RETURN_IF_ERROR(check_size(file, join_path(checkpoint_path, file.name)));
  return check;
}

namespace {

std::string directory_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// `latest` can change before the last file is opened, so it is resolved once.
std::string resolve_symlink(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(std::filesystem::path(path), error)) return path;
  const auto target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

struct OpenFile {
  UniqueFd fd;
  uint64_t bytes = 0;
  FileIdentity identity;
};

// The time of the last change of the inode, because that of the content can be set back after a write.
FileIdentity identity_of(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .bytes = static_cast<uint64_t>(info.st_size),
          .modified_ns = int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

// Opens and share-locks a file: delete_checkpoints() does not delete a checkpoint whose SHA256SUMS
// is locked. Open files stay readable even if the file system does not support locks.
Result<OpenFile> open_locked(const std::string& directory, const std::string& name) {
  const std::string path = join_path(directory, name);
  auto opened = default_file_system().open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!opened.ok()) {
    const bool is_deleted =
        opened.status().code() == StatusCode::kNotFound && !is_directory(directory);
    if (is_deleted) return Status(StatusCode::kNotFound, directory + ": no such checkpoint");
    if (opened.status().code() == StatusCode::kNotFound)
      return Status(StatusCode::kCorrupt, path + ": missing");
    return opened.status();
  }
  STOKER_ASSIGN_OR_RETURN(const struct stat info,
                          regular_file(opened->get(), path, StatusCode::kCorrupt));
  if (::flock(opened->get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Status(StatusCode::kBusy,
                  path + ": locked exclusively by " + describe_lock_holder(path));
  return OpenFile{std::move(*opened), static_cast<uint64_t>(info.st_size), identity_of(info)};
}

// The file that was verified. Verified once more if it looks like another one, because some network and
// FUSE mounts give a file another inode at each open.
Result<UniqueFd> open_again(const std::string& path, const FileIdentity& verified,
                            const WrittenFile& file) {
  auto opened = default_file_system().open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (opened.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound, path + ": was deleted after it was verified");
  if (!opened.ok()) return opened.status();
  struct stat info {};
  if (::fstat(opened->get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (identity_of(info) == verified) return opened;
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + ": not a regular file");
  const Status same =
      verify_file(opened->get(), static_cast<uint64_t>(info.st_size), file, path, "committed");
  if (same.ok()) return opened;
  if (same.code() != StatusCode::kCorrupt) return same;
  return Status(StatusCode::kCorrupt, path + ": was replaced or changed after it was verified");
}

Result<std::string> read_all(const OpenFile& file, uint64_t max_bytes, const std::string& path) {
  if (file.bytes > max_bytes)
    return Status(StatusCode::kCorrupt,
                  path + ": " + std::to_string(file.bytes) + " bytes exceed the limit");
  std::string text(file.bytes, '\0');
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(
                              file.fd.get(), 0, std::as_writable_bytes(std::span(text)), path));
  if (got != text.size())
    return Status(StatusCode::kCorrupt, path + ": was truncated during the read");
  return text;
}

}  // namespace

Result<VerifiedCheckpoint> CheckpointStore::open_verified(const std::string& given_path,
                                                          const OnBytes& on_bytes) {
  const std::string checkpoint_path = resolve_symlink(given_path);
  const std::string checksums_path = join_path(checkpoint_path, kChecksumsName);
  const std::string manifest_path = join_path(checkpoint_path, kManifestName);
  VerifiedCheckpoint checkpoint;
  checkpoint.path_ = checkpoint_path;

  // SHA256SUMS first: its lock protects the other files from deletion.
  STOKER_ASSIGN_OR_RETURN(OpenFile sums_file, open_locked(checkpoint_path, kChecksumsName));
  STOKER_ASSIGN_OR_RETURN(const std::string sums_text,
                          read_all(sums_file, kMaxChecksumsBytes, checksums_path));
  STOKER_ASSIGN_OR_RETURN(const std::vector<Checksum> sums,
                          parse_checksums(sums_text, checksums_path));

  STOKER_ASSIGN_OR_RETURN(const OpenFile manifest_file,
                          open_locked(checkpoint_path, kManifestName));
  STOKER_ASSIGN_OR_RETURN(const std::string manifest_text,
                          read_all(manifest_file, kMaxManifestBytes, manifest_path));
  checkpoint.manifest_sha256_ = sha256_hex(manifest_text);
  const auto manifest_sum = std::ranges::find(sums, kManifestName, &Checksum::name);
  if (manifest_sum == sums.end() || manifest_sum->sha256 != checkpoint.manifest_sha256_)
    return Status(StatusCode::kCorrupt, manifest_path + ": does not match SHA256SUMS");
  STOKER_ASSIGN_OR_RETURN(checkpoint.manifest_, parse_manifest(manifest_text, manifest_path));
  const Manifest& manifest = checkpoint.manifest_;
  const auto step = parse_checkpoint_name(directory_name(checkpoint_path));
  if (step && *step != manifest.step)
    return Status(StatusCode::kCorrupt,
                  manifest_path + ": is of step " + std::to_string(manifest.step));
  STOKER_RETURN_IF_ERROR(compare_checksums(manifest, sums, checksums_path));

  const auto verify = [&](const OpenFile& open, const WrittenFile& file) {
    return verify_file(open.fd.get(), open.bytes, file, join_path(checkpoint_path, file.name),
                       "committed", on_bytes);
  };
  std::vector<std::string> shards;
  for (int index = 0; index < manifest.optimizer_shards; ++index)
    shards.push_back(optimizer_shard_name(index, manifest.optimizer_shards));
  std::vector<OpenFile> opened;  // of the files that are no shards
  std::vector<const WrittenFile*> whole;
  for (const WrittenFile& file : manifest.files) {
    if (std::ranges::binary_search(shards, file.name)) continue;
    STOKER_ASSIGN_OR_RETURN(OpenFile open, open_locked(checkpoint_path, file.name));
    opened.push_back(std::move(open));
    whole.push_back(&file);
  }
  for (size_t i = 0; i < opened.size(); ++i) {
    STOKER_RETURN_IF_ERROR(verify(opened[i], *whole[i]));
    checkpoint.files_.push_back({whole[i]->name, std::move(opened[i].fd)});
  }
  for (const std::string& name : shards) {
    const auto file = std::ranges::find(manifest.files, name, &WrittenFile::name);
    STOKER_ASSIGN_OR_RETURN(const OpenFile open, open_locked(checkpoint_path, name));
    STOKER_RETURN_IF_ERROR(verify(open, *file));
    checkpoint.shards_.push_back({name, open.identity});
  }
  checkpoint.files_.push_back({kChecksumsName, std::move(sums_file.fd)});
  return checkpoint;
}

Result<std::unique_ptr<SafetensorsFile>> VerifiedCheckpoint::open_tensors(
    const std::string& file_name) const {
  const std::string path = join_path(path_, file_name);
  const auto entry = std::ranges::find(files_, file_name, &LockedFile::name);
  if (entry == files_.end())
    return Status(StatusCode::kNotFound, path + ": not in this checkpoint");
  UniqueFd fd(::fcntl(entry->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return Status::from_errno(errno, "dup " + path);
  return SafetensorsFile::open_fd(std::move(fd), path);
}

Result<std::unique_ptr<ShardedTensors>> VerifiedCheckpoint::open_optimizer() const {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const auto& [name, identity] : shards_) {
    const std::string path = join_path(path_, name);
    const auto file_of = std::ranges::find(manifest_.files, name, &WrittenFile::name);
    const auto open = [path, identity = identity, written = *file_of] {
      return open_again(path, identity, written);
    };
    STOKER_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open_for_each_read(open, path));
    files.push_back(std::move(file));
  }
  if (files.empty()) {
    STOKER_ASSIGN_OR_RETURN(auto file, open_tensors("optimizer.safetensors"));
    files.push_back(std::move(file));
  }
  return ShardedTensors::create(std::move(files));
}

}  // namespace stoker::checkpoint
