#include "shared/checkpoint/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "shared/checkpoint/discard.h"
#include "shared/checkpoint/names.h"

namespace stoker::checkpoint {

CheckpointStore::CheckpointStore(std::string directory, FileSystem& files)
    : directory_(std::move(directory)), files_(files) {}

std::string CheckpointStore::name_of(uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu", static_cast<unsigned long long>(step));
  return name;
}

std::optional<uint64_t> CheckpointStore::maybe_step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  // Only the one spelling that name_of() gives, so that no step has two names.
  if (parsed.ec != std::errc() || parsed.ptr != end || name_of(step) != name) return std::nullopt;
  return step;
}

Result<std::vector<CheckpointEntry>> CheckpointStore::list() const {
  const auto names = list_directory(directory_);
  if (!names.ok() && names.status().code() == Code::kNotFound)
    return std::vector<CheckpointEntry>{};
  if (!names.ok()) return names.status();
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : *names) {
    const auto step = maybe_step_of(name);
    if (!step) continue;
    std::string path = join_path(directory_, name);
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))
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
    if (opened.status().code() == Code::kNotFound) continue;  // retired since it was listed
    // Of a later release, and perhaps as good as can be: the ones before it are not what to go on from.
    if (opened.status().code() == Code::kMismatch) return opened.status();
    if (rejected++ == 0) newest = opened.status();
    if (on_rejected) on_rejected(*entry, opened.status());
  }
  if (rejected == 0) return Status(Code::kNotFound, directory_ + ": no checkpoint");
  return Status(Code::kCorrupt, directory_ + ": none of " + std::to_string(rejected) +
                                    " checkpoints is valid; the newest: " + newest.message());
}

// An open descriptor, not remembered numbers: as long as it is open, no other directory can have the
// same identity.
Status CheckpointStore::check_place() {
  UniqueFd now(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!now.valid()) {
    const int error = errno;
    return Status::from_errno(error, "open directory " + directory_)
        .with_context(error == ENOENT && place_.valid()
                          ? "the run directory was moved or removed; bring it back"
                          : "checkpoints");
  }
  if (!place_.valid()) {
    place_ = std::move(now);
    return {};
  }
  struct stat here {};
  struct stat before {};
  if (::fstat(now.get(), &here) != 0 || ::fstat(place_.get(), &before) != 0)
    return Status::from_errno(errno, "stat " + directory_);
  if (here.st_dev == before.st_dev && here.st_ino == before.st_ino) return {};
  return Status(Code::kNotFound,
                directory_ +
                    ": is another directory than this run began with (moved away, replaced "
                    "or mounted over); bring that one back");
}

Status CheckpointStore::clean_up() {
  const auto names = list_directory(directory_);
  if (!names.ok()) return names.status().code() == Code::kNotFound ? Status() : names.status();
  STOKER_RETURN_IF_ERROR(check_place());
  std::vector<std::string> hidden;
  for (const std::string& name : *names)
    if (name.starts_with(kTemporaryPrefix) || name.starts_with(kTrashPrefix))
      hidden.push_back(name);
  return discard(files_, directory_, hidden);
}

}  // namespace stoker::checkpoint
