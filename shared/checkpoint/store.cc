#include "shared/checkpoint/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "shared/base/clock.h"
#include "shared/base/directory_root.h"
#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/base/regular_file.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {
namespace {

// Removes hidden directories (.tmp-… and .trash-…). Their files are deleted only after the hidden
// name is durable. Otherwise a power cut could restore the directory under its old name with some
// of its files missing.
Status delete_directory(FileSystem& files, const std::string& directory,
                        const std::vector<std::string>& hidden_names) {
  if (hidden_names.empty()) return {};
  STOKER_RETURN_IF_ERROR(files.sync_directory(directory));
  for (const std::string& name : hidden_names)
    STOKER_RETURN_IF_ERROR(files.remove_tree(join_path(directory, name)));
  return {};
}

// Prefixes of a checkpoint directory before it is visible, and after it was deleted.
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kTrashPrefix = ".trash-";
constexpr char kLatestName[] = "latest";
constexpr std::string_view kStepPrefix = "step-";

}  // namespace

CheckpointStore::CheckpointStore(std::string directory, FileSystem& files)
    : directory_(std::move(directory)), files_(files) {}

std::string CheckpointStore::checkpoint_name(uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu", static_cast<unsigned long long>(step));
  return name;
}

bool CheckpointStore::is_unfinished_name(const std::string& name) {
  return name.starts_with(std::string(kTemporaryPrefix) + std::string(kStepPrefix));
}

std::optional<uint64_t> CheckpointStore::parse_checkpoint_name(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  // Accepts only the spelling of checkpoint_name(), so that every step has a unique name.
  if (parsed.ec != std::errc() || parsed.ptr != end || checkpoint_name(step) != name)
    return std::nullopt;
  return step;
}

Result<std::vector<CheckpointEntry>> CheckpointStore::list() const {
  const auto names = list_directory(directory_);
  if (!names.ok() && names.status().code() == StatusCode::kNotFound)
    return std::vector<CheckpointEntry>{};
  if (!names.ok()) return names.status();
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : *names) {
    const auto step = parse_checkpoint_name(name);
    if (!step) continue;
    std::string path = join_path(directory_, name);
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
      entries.push_back({*step, std::move(path)});
  }
  std::ranges::sort(entries, {}, &CheckpointEntry::step);
  return entries;
}

Result<VerifiedCheckpoint> CheckpointStore::open_newest(
    const std::function<void(const CheckpointEntry&, const Status&)>& on_rejected,
    const std::function<Status(const Status&)>& on_locked) const {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  size_t rejected = 0;
  Status newest;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    auto opened = open_verified(entry->path);
    while (on_locked && opened.status().code() == StatusCode::kBusy) {
      STOKER_RETURN_IF_ERROR(on_locked(opened.status()));
      opened = open_verified(entry->path);
    }
    if (opened.ok()) return opened;
    // Deleted since it was listed, or retention is about to.
    if (opened.status().code() == StatusCode::kNotFound ||
        opened.status().code() == StatusCode::kBusy)
      continue;
    // Written by a later release and possibly valid, so an older checkpoint must not be used
    // instead.
    if (opened.status().code() == StatusCode::kMismatch) return opened.status();
    if (rejected++ == 0) newest = opened.status();
    if (on_rejected) on_rejected(*entry, opened.status());
  }
  if (rejected == 0) return Status(StatusCode::kNotFound, directory_ + ": no checkpoint");
  return Status(StatusCode::kCorrupt, directory_ + ": none of " + std::to_string(rejected) +
                                          " checkpoints is valid; the newest: " + newest.message());
}

// Keeps a descriptor open instead of storing device and inode numbers: while it is open, no other
// directory can have the same identity.
Status CheckpointStore::check_directory() {
  UniqueFd now(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!now.valid()) {
    const int error = errno;
    return Status::from_errno(error, "open directory " + directory_)
        .with_context(error == ENOENT && directory_fd_.valid()
                          ? "the run directory was moved or removed; restore it"
                          : "checkpoints");
  }
  if (!directory_fd_.valid()) {
    directory_fd_ = std::move(now);
    return {};
  }
  struct stat current {};
  struct stat before {};
  if (::fstat(now.get(), &current) != 0 || ::fstat(directory_fd_.get(), &before) != 0)
    return Status::from_errno(errno, "stat " + directory_);
  if (current.st_dev == before.st_dev && current.st_ino == before.st_ino) return {};
  return Status(StatusCode::kNotFound,
                directory_ +
                    ": is not the directory in which this run started (moved, replaced "
                    "or mounted over); restore the original");
}

Status CheckpointStore::clean_up() {
  const auto names = list_directory(directory_);
  if (!names.ok())
    return names.status().code() == StatusCode::kNotFound ? Status() : names.status();
  STOKER_RETURN_IF_ERROR(check_directory());
  std::vector<std::string> hidden;
  for (const std::string& name : *names)
    if (name.starts_with(kTemporaryPrefix) || name.starts_with(kTrashPrefix))
      hidden.push_back(name);
  return delete_directory(files_, directory_, hidden);
}

namespace {

// Headers, manifest, checksums, the directory itself, and run/last_checkpoint.json.
constexpr uint64_t kSmallFilesBytes = 1 << 20;

uint64_t bytes_of(const TensorViews& views) {
  uint64_t bytes = 0;
  for (const TensorView& view : views) bytes += view.bytes.size();
  return bytes;
}

std::string optimizer_file_name(const CheckpointContent& content, int index) {
  return content.num_shards > 0 ? optimizer_shard_name(index, content.num_shards)
                                : "optimizer.safetensors";
}

std::string random_digits() {
  constexpr size_t kDigits = 16;
  const std::string path = temporary_path("name");
  return path.substr(path.size() - kDigits);
}

Result<SafetensorsContent> lay_out(const std::string& name, const TensorViews& views,
                                   const TensorRanges& ranges) {
  // PyTorch loaders expect this entry.
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (!ranges.empty()) metadata[kRangesKey] = format_ranges(ranges);
  return make_safetensors_layout(name, views, metadata);
}

// What a rename publishes must be what the other processes have written: reads it, from their file
// system or network.
Status verify_shard(FileSystem& files, const std::string& directory, const WrittenFile& shard) {
  const std::string path = join_path(directory, shard.name);
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const struct stat info,
                          regular_file(fd.get(), path, StatusCode::kCorrupt));
  return verify_file(fd.get(), static_cast<uint64_t>(info.st_size), shard, path, "written");
}

Status add_other_shards(FileSystem& files, const std::string& directory,
                        const CheckpointContent& content, Manifest& manifest) {
  if (content.num_shards == 0) return {};
  STOKER_ASSIGN_OR_RETURN(const std::vector<WrittenFile> shards, content.maybe_others->wait());
  for (const WrittenFile& shard : shards) {
    STOKER_RETURN_IF_ERROR(verify_shard(files, directory, shard));
    manifest.files.push_back(shard);
  }
  return {};
}

// Writes all files; the caller renames the directory. SHA256SUMS is last: if it is complete, all
// other files are.
Result<Manifest> write_files(FileSystem& files, const std::string& directory,
                             const CheckpointContent& content) {
  Manifest manifest = content.manifest;
  manifest.format = content.num_shards > 0 ? kShardedFormat : kFormat;
  manifest.optimizer_shards = content.num_shards;
  if (manifest.created_at.empty()) manifest.created_at = to_iso8601(system_clock().wall());
  if (manifest.stoker_version.empty()) manifest.stoker_version = "stoker " STOKER_VERSION;
  std::vector<std::pair<std::string, const TensorViews*>> parts = {
      {"model.safetensors", &content.model},
      {optimizer_file_name(content, 0), &content.optim},
      {"trainer_state.safetensors", &content.state}};
  if (!content.ema.empty()) parts.emplace_back("ema.safetensors", &content.ema);
  std::vector<SafetensorsContent> laid_out;
  std::vector<FileContent> contents;
  for (const auto& [name, views] : parts) {
    auto file = lay_out(name, *views, views == &content.optim ? content.ranges : TensorRanges());
    if (!file.ok()) return file.status().with_context(directory);
    laid_out.push_back(*std::move(file));
    contents.push_back(laid_out.back().content);
  }
  STOKER_ASSIGN_OR_RETURN(manifest.files,
                          write_hashed_files(files, directory, contents, content.on_bytes));
  STOKER_RETURN_IF_ERROR(add_other_shards(files, directory, content, manifest));
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

// A synced checkpoint can still be lost if a parent directory was just created and not synced
// itself. Newly created directories are on the same file system as `directory` and can be opened by
// this process; directories beyond that existed before.
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

// For users and scripts only; stoker does not read it. An error here is not an error of the
// checkpoint.
void update_latest_symlink(const std::string& directory, const std::string& name) {
  const auto temporary =
      resolve_parent(join_path(directory, std::string(kTemporaryPrefix) + kLatestName));
  const auto latest = resolve_parent(join_path(directory, kLatestName));
  const auto update = [&] {
    const char* const from = temporary->name.c_str();
    (void)::unlinkat(temporary->at(), from, 0);
    return ::symlinkat(name.c_str(), temporary->at(), from) == 0 &&
           ::renameat(temporary->at(), from, latest->at(), latest->name.c_str()) == 0;
  };
  if (!temporary.ok() || !latest.ok() || !update())
    log_debug("latest symlink update failed", {{"directory", directory}});
}

}  // namespace

Result<WrittenFile> write_optimizer_shard(FileSystem& files, const std::string& directory,
                                          const CheckpointContent& content, int index) {
  const auto file = lay_out(optimizer_file_name(content, index), content.optim, content.ranges);
  if (!file.ok()) return file.status().with_context(directory);
  STOKER_ASSIGN_OR_RETURN(auto written, write_hashed_files(files, directory, {&file->content, 1}));
  return std::move(written.front());
}

// Fails early instead of after gigabytes of writes. Two programs that check at the same time can
// both succeed; the reservation of the files is authoritative.
Status CheckpointStore::check_free_space(const CheckpointContent& content) const {
  const uint64_t optim_bytes =
      content.num_shards > 0 ? content.optim_bytes : bytes_of(content.optim);
  const uint64_t needed = bytes_of(content.model) + optim_bytes + bytes_of(content.state) +
                          bytes_of(content.ema) + kSmallFilesBytes;
  STOKER_ASSIGN_OR_RETURN(const uint64_t free, files_.free_bytes(directory_));
  if (free >= needed) return {};
  return Status(StatusCode::kNoSpace,
                directory_ + ": a checkpoint needs " + format_mib(needed) + ", " +
                    std::to_string(free >> 20) +
                    " MiB are free; free disk space, or lower checkpoint.keep_last");
}

// What earlier attempts have left. Only `own`, the name of the next one, must go: into the others,
// other processes can still write, or hold files open on a network file system. clean_up() removes
// them at the next start.
Status CheckpointStore::remove_unfinished(const std::string& own) {
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(directory_));
  std::vector<std::string> hidden;
  for (const std::string& name : names)
    if (is_unfinished_name(name)) hidden.push_back(name);
  if (hidden.empty()) return {};
  STOKER_RETURN_IF_ERROR(files_.sync_directory(directory_));  // as delete_directory()
  for (const std::string& name : hidden) {
    const Status removed = files_.remove_tree(join_path(directory_, name));
    if (!removed.ok() && name == own) return removed;
  }
  return {};
}

Result<Manifest> CheckpointStore::commit(const CheckpointContent& content) {
  const std::string name = checkpoint_name(content.manifest.step);
  const std::string path = join_path(directory_, name);
  std::string hidden = std::string(kTemporaryPrefix) + name;
  // A name that the processes of an earlier attempt, which could still write, do not know.
  if (content.num_shards > 0) hidden += '-' + random_digits();
  const std::string temporary = join_path(directory_, hidden);
  // The directory is created only before the first save. If the user moved the run away, this must
  // fail instead of creating another directory.
  if (!directory_fd_.valid()) STOKER_RETURN_IF_ERROR(make_directories(files_, directory_));
  STOKER_RETURN_IF_ERROR(check_directory());
  if (exists(path))
    return Status(StatusCode::kAlreadyExists, path + ": a checkpoint of this step already exists");
  if (!is_rooted_) STOKER_RETURN_IF_ERROR(sync_parent_directories(files_, directory_));
  is_rooted_ = true;
  STOKER_RETURN_IF_ERROR(check_free_space(content));
  STOKER_RETURN_IF_ERROR(remove_unfinished(hidden));
  STOKER_RETURN_IF_ERROR(files_.make_directory(temporary));
  if (content.num_shards > 0) {
    const Status begun = content.maybe_others->begin(hidden);
    if (!begun.ok()) {
      static_cast<void>(files_.remove_tree(temporary));
      return begun;
    }
  }

  auto written = write_files(files_, temporary, content);
  if (!written.ok()) {
    // On failure, clean_up() removes it at the next start.
    static_cast<void>(files_.remove_tree(temporary));
    return written;
  }
  Status status = files_.rename_noreplace(temporary, path);
  if (status.ok()) status = files_.sync_directory(directory_);
  if (!status.ok()) {
    // The checkpoint can be visible, but a power cut could remove it. A checkpoint that was not
    // reported as saved must not be visible. (On a network file system, a rename can report an
    // error and still succeed.)
    if (!exists(temporary)) static_cast<void>(files_.rename(path, temporary));
    static_cast<void>(delete_directory(files_, directory_, {hidden}));
    return status;
  }
  update_latest_symlink(directory_, name);
  return written;
}

namespace {

// Exclusive lock of SHA256SUMS while the directory is renamed, so that no reader opens it in
// between. kBusy: a reader holds the lock. The descriptor is writable, which NFS requires for an
// exclusive lock (EBADF otherwise). Invalid without an error: no process can hold a lock, because
// it is a corrupt checkpoint without that file, or because the file system has no locks.
Result<UniqueFd> lock_for_deletion(FileSystem& files, const std::string& checkpoint) {
  const std::string path = join_path(checkpoint, kChecksumsName);
  auto fd = files.open(path, O_RDWR | O_NOFOLLOW);
  if (fd.status().code() == StatusCode::kNotFound) return UniqueFd();
  if (!fd.ok()) return fd.status();
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == ENOSYS || errno == EOPNOTSUPP) return UniqueFd();
  return Status::from_errno(errno, "lock " + path);
}

}  // namespace

Result<DeletedCheckpoints> CheckpointStore::delete_checkpoints(std::span<const uint64_t> steps) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  DeletedCheckpoints deleted;
  if (entries.empty() || steps.empty()) return deleted;
  STOKER_RETURN_IF_ERROR(check_directory());
  std::vector<std::string> hidden;
  std::vector<UniqueFd> locks;  // held until all are renamed
  Status status;
  for (const CheckpointEntry& entry : std::span(entries).first(entries.size() - 1)) {
    if (std::ranges::count(steps, entry.step) == 0) continue;
    auto lock = lock_for_deletion(files_, entry.path);
    if (!lock.ok()) {
      deleted.blocked.push_back({entry.step, lock.status()});
      continue;
    }
    const std::string trash = std::string(kTrashPrefix) + checkpoint_name(entry.step);
    status = files_.remove_tree(join_path(directory_, trash));
    if (status.ok()) status = files_.rename(entry.path, join_path(directory_, trash));
    if (!status.ok()) break;
    deleted.deleted_steps.push_back(entry.step);
    hidden.push_back(trash);
    locks.push_back(*std::move(lock));
  }
  const Status discarded = delete_directory(files_, directory_, hidden);
  if (!status.ok()) return status;
  if (!discarded.ok()) return discarded;
  return deleted;
}

namespace {

constexpr int64_t kMaxClasses = 1'000'000;  // the maximum number of classes of a dataset

bool is_weight(double number) { return std::isfinite(number) && number >= 0; }

}  // namespace

Result<std::vector<double>> read_class_weights(const VerifiedCheckpoint& saved) {
  STOKER_ASSIGN_OR_RETURN(const auto state, saved.open_tensors("trainer_state.safetensors"));
  const TensorSpec* const found = state->find(kClassWeights);
  if (found == nullptr) return std::vector<double>();
  const auto corrupt = [&saved](const std::string& what) {
    return Status(StatusCode::kCorrupt, saved.path() + "/trainer_state.safetensors: " + what);
  };
  if (found->dtype != DType::kF64 || found->shape.size() != 1 || found->shape[0] > kMaxClasses)
    return corrupt(to_string(*found) + " is not F64 [classes]");
  std::vector<double> weights(static_cast<size_t>(found->shape[0]));
  STOKER_RETURN_IF_ERROR(state->read(kClassWeights, std::as_writable_bytes(std::span(weights))));
  if (!std::ranges::all_of(weights, is_weight))
    return corrupt(std::string(kClassWeights) + " contains an invalid weight");
  return weights;
}

}  // namespace stoker::checkpoint
