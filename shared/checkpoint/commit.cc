#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/checkpoint/checkpoint_names.h"
#include "shared/checkpoint/checksums.h"
#include "shared/checkpoint/delete_directory.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {
namespace {

// Headers, manifest, sums, and the directory itself.
constexpr uint64_t kSmallFilesBytes = 1 << 20;

uint64_t bytes_of(const TensorViews& views) {
  uint64_t bytes = 0;
  for (const TensorView& view : views) bytes += view.bytes.size();
  return bytes;
}

// Everything but the move to its name. SHA256SUMS last: where it is whole, so is the rest.
Result<Manifest> write_files(FileSystem& files, const std::string& directory,
                             const CheckpointContent& content) {
  Manifest manifest = content.manifest;
  manifest.format = kFormat;
  if (manifest.created.empty()) manifest.created = to_iso8601(system_clock().wall());
  if (manifest.stoker_version.empty()) manifest.stoker_version = "stoker " STOKER_VERSION;
  std::vector<std::pair<const char*, const TensorViews*>> parts = {
      {"model.safetensors", &content.model},
      {"optimizer.safetensors", &content.optim},
      {"trainer_state.safetensors", &content.state}};
  if (!content.ema.empty()) parts.emplace_back("ema.safetensors", &content.ema);
  std::vector<SafetensorsContent> laid_out;
  std::vector<FileContent> contents;
  for (const auto& [name, views] : parts) {
    // PyTorch's loaders expect this entry.
    auto file = make_safetensors_layout(name, *views, {{"format", "pt"}});
    if (!file.ok()) return file.status().with_context(directory);
    laid_out.push_back(*std::move(file));
    contents.push_back(laid_out.back().content);
  }
  STOKER_ASSIGN_OR_RETURN(manifest.files, write_hashed_files(files, directory, contents));
  std::vector<Checksum> sums;
  for (const WrittenFile& file : manifest.files) sums.push_back({file.sha256, file.name});
  STOKER_ASSIGN_OR_RETURN(const WrittenFile written,
                          write_hashed_file(files, directory, kManifestName, to_json(manifest)));
  sums.push_back({written.sha256, written.name});
  STOKER_RETURN_IF_ERROR(
      write_hashed_file(files, directory, kChecksumsName, format_checksums(sums)).status());
  STOKER_RETURN_IF_ERROR(files.sync_directory(directory));
  return manifest;
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// A synced checkpoint is lost all the same when a directory above it was made just now and not
// synced itself. What was made just now is on the same file system as `directory`, and may be opened
// by us; what is beyond was there before.
Status sync_parent_directories(FileSystem& files, const std::string& directory) {
  std::error_code error;
  const auto real = std::filesystem::canonical(directory, error);
  if (error) return Status::from_errno(error.value(), "resolve " + directory);
  struct stat info {};
  if (::stat(real.c_str(), &info) != 0) return Status::from_errno(errno, "stat " + real.string());
  const dev_t device = info.st_dev;
  for (auto path = real; path != path.parent_path();) {
    path = path.parent_path();
    if (::stat(path.c_str(), &info) != 0 || info.st_dev != device) break;
    const Status status = files.sync_directory(path.string());
    if (!status.ok() && status.code() != StatusCode::kPermission) return status;
  }
  return {};
}

// A convenience for people and scripts, which nothing of ours reads: trouble with it is not the checkpoint's.
void update_latest_symlink(const std::string& directory, const std::string& name) {
  const std::string temporary = join_path(directory, std::string(kTemporaryPrefix) + kLatestName);
  ::unlink(temporary.c_str());
  if (::symlink(name.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), join_path(directory, kLatestName).c_str()) != 0)
    log_debug("latest symlink update failed", {{"directory", directory}});
}

}  // namespace

// Refuses at once what would fail after gigabytes. Of two programs that look at the same time both
// may see room: the reservation of the files decides.
Status CheckpointStore::check_free_space(const CheckpointContent& content) const {
  const uint64_t needed = bytes_of(content.model) + bytes_of(content.optim) +
                          bytes_of(content.state) + bytes_of(content.ema) + kSmallFilesBytes;
  STOKER_ASSIGN_OR_RETURN(const uint64_t free, files_.free_bytes(directory_));
  if (free >= needed) return {};
  return Status(StatusCode::kNoSpace,
                directory_ + ": a checkpoint needs " + std::to_string(needed >> 20) + " MiB, " +
                    std::to_string(free >> 20) +
                    " MiB are free; make room, or lower checkpoint.keep_last");
}

Result<Manifest> CheckpointStore::commit(const CheckpointContent& content) {
  const std::string name = checkpoint_name(content.manifest.step);
  const std::string path = join_path(directory_, name);
  const std::string hidden = std::string(kTemporaryPrefix) + name;
  const std::string temporary = join_path(directory_, hidden);
  // Made anew only before anything was ever saved in it: somebody who moved the run away must hear of
  // it, and not find another one in its place.
  if (!directory_fd_.valid()) STOKER_RETURN_IF_ERROR(make_directories(files_, directory_));
  STOKER_RETURN_IF_ERROR(check_directory());
  if (exists(path))
    return Status(StatusCode::kAlreadyExists,
                  path + ": a checkpoint of this step is there already");
  if (!is_rooted_) STOKER_RETURN_IF_ERROR(sync_parent_directories(files_, directory_));
  is_rooted_ = true;
  STOKER_RETURN_IF_ERROR(check_free_space(content));
  if (exists(temporary)) STOKER_RETURN_IF_ERROR(delete_directory(files_, directory_, {hidden}));
  STOKER_RETURN_IF_ERROR(files_.make_directory(temporary));

  auto written = write_files(files_, temporary, content);
  if (!written.ok()) {
    static_cast<void>(files_.remove_tree(temporary));  // else clean_up() does it at the next start
    return written;
  }
  Status status = files_.rename_noreplace(temporary, path);
  if (status.ok()) status = files_.sync_directory(directory_);
  if (!status.ok()) {
    // It may be visible, but a power cut could take it away: what is not acknowledged must not be
    // seen. (Over a network, a rename may report an error and be done all the same.)
    if (!exists(temporary)) static_cast<void>(files_.rename(path, temporary));
    static_cast<void>(delete_directory(files_, directory_, {hidden}));
    return status;
  }
  update_latest_symlink(directory_, name);
  return written;
}

}  // namespace stoker::checkpoint
