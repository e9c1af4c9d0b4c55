#include "shared/checkpoint/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "shared/checkpoint/checkpoint_names.h"
#include "shared/checkpoint/delete_directory.h"

namespace stoker::checkpoint {

CheckpointStore::CheckpointStore(std::string directory, FileSystem& files)
    : directory_(std::move(directory)), files_(files) {}

std::string CheckpointStore::checkpoint_name(uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu", static_cast<unsigned long long>(step));
  return name;
}

std::optional<uint64_t> CheckpointStore::parse_checkpoint_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  // Only the one spelling that name_of() gives, so that no step has two names.
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
    const std::function<void(const CheckpointEntry&, const Status&)>& on_rejected) const {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  size_t rejected = 0;
  Status newest;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    auto opened = open_verified(entry->path);
    if (opened.ok()) return opened;
    if (opened.status().code() == StatusCode::kNotFound) continue;  // retired since it was listed
    // Of a later release, and perhaps as good as can be: the ones before it are not what to go on from.
    if (opened.status().code() == StatusCode::kMismatch) return opened.status();
    if (rejected++ == 0) newest = opened.status();
    if (on_rejected) on_rejected(*entry, opened.status());
  }
  if (rejected == 0) return Status(StatusCode::kNotFound, directory_ + ": no checkpoint");
  return Status(StatusCode::kCorrupt, directory_ + ": none of " + std::to_string(rejected) +
                                          " checkpoints is valid; the newest: " + newest.message());
}

// An open descriptor, not remembered numbers: as long as it is open, no other directory can have the
// same identity.
Status CheckpointStore::check_directory() {
  UniqueFd now(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!now.valid()) {
    const int error = errno;
    return Status::from_errno(error, "open directory " + directory_)
        .with_context(error == ENOENT && directory_fd_.valid()
                          ? "the run directory was moved or removed; bring it back"
                          : "checkpoints");
  }
  if (!directory_fd_.valid()) {
    directory_fd_ = std::move(now);
    return {};
  }
  struct stat here {};
  struct stat before {};
  if (::fstat(now.get(), &here) != 0 || ::fstat(directory_fd_.get(), &before) != 0)
    return Status::from_errno(errno, "stat " + directory_);
  if (here.st_dev == before.st_dev && here.st_ino == before.st_ino) return {};
  return Status(StatusCode::kNotFound,
                directory_ +
                    ": is another directory than this run began with (moved away, replaced "
                    "or mounted over); bring that one back");
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

}  // namespace stoker::checkpoint
