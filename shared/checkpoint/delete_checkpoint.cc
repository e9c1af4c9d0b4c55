#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "shared/checkpoint/checkpoint_names.h"
#include "shared/checkpoint/checksums.h"
#include "shared/checkpoint/delete_directory.h"
#include "shared/checkpoint/store.h"

namespace stoker::checkpoint {
namespace {

// Holds SHA256SUMS for itself while the directory is moved, so that no reader begins in between. Empty: a
// reader has it. A damaged checkpoint without that file has no reader.
struct Claim {
  bool taken = false;
  UniqueFd fd;
};
Claim claim(const std::string& checkpoint) {
  UniqueFd fd(
      ::open(join_path(checkpoint, kChecksumsName).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return {.taken = true};
  const bool is_read = ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return {.taken = !is_read, .fd = std::move(fd)};
}

}  // namespace

Result<DeletedCheckpoints> CheckpointStore::delete_checkpoints(std::span<const uint64_t> steps) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  DeletedCheckpoints deleted;
  if (entries.empty() || steps.empty()) return deleted;
  STOKER_RETURN_IF_ERROR(check_directory());
  std::vector<std::string> hidden;
  std::vector<Claim> claims;  // until all are out of sight
  Status status;
  for (const CheckpointEntry& entry : std::span(entries).first(entries.size() - 1)) {
    if (std::ranges::count(steps, entry.step) == 0) continue;
    Claim claimed = claim(entry.path);
    if (!claimed.taken) {
      deleted.blocked.push_back(entry.step);
      continue;
    }
    const std::string trash = std::string(kTrashPrefix) + checkpoint_name(entry.step);
    status = files_.remove_tree(join_path(directory_, trash));
    if (status.ok()) status = files_.rename(entry.path, join_path(directory_, trash));
    if (!status.ok()) break;
    deleted.deleted_steps.push_back(entry.step);
    hidden.push_back(trash);
    claims.push_back(std::move(claimed));
  }
  const Status discarded = delete_directory(files_, directory_, hidden);
  if (!status.ok()) return status;
  if (!discarded.ok()) return discarded;
  return deleted;
}

}  // namespace stoker::checkpoint
