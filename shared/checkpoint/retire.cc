#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "shared/checkpoint/discard.h"
#include "shared/checkpoint/names.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/sums.h"

namespace stoker::checkpoint {
namespace {

bool is_kept(const Retention& retention, const CheckpointEntry& entry, size_t newer) {
  const auto keep_last = static_cast<size_t>(std::max(retention.keep_last, 1));
  const bool is_milestone =
      retention.keep_every_steps > 0 && entry.step % retention.keep_every_steps == 0;
  return newer < keep_last || is_milestone ||
         std::ranges::count(retention.protected_steps, entry.step) > 0;
}

// Holds SHA256SUMS for itself while the directory is moved, so that no reader begins in between. Empty: a
// reader has it. A damaged checkpoint without that file has no reader.
struct Claim {
  bool taken = false;
  UniqueFd fd;
};
Claim claim(const std::string& checkpoint) {
  UniqueFd fd(::open(join_path(checkpoint, kSumsName).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return {.taken = true};
  const bool is_read = ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return {.taken = !is_read, .fd = std::move(fd)};
}

}  // namespace

Result<std::vector<uint64_t>> CheckpointStore::retire(const Retention& retention) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  std::vector<uint64_t> gone;
  std::vector<std::string> hidden;
  std::vector<Claim> claims;  // until all are out of sight
  Status status;
  for (size_t i = 0; i < entries.size() && status.ok(); ++i) {
    const CheckpointEntry& entry = entries[i];
    if (is_kept(retention, entry, entries.size() - 1 - i)) continue;
    Claim claimed = claim(entry.path);
    if (!claimed.taken) continue;  // next time
    const std::string trash = std::string(kTrashPrefix) + name_of(entry.step);
    status = files_.remove_tree(join_path(directory_, trash));
    if (status.ok()) status = files_.rename(entry.path, join_path(directory_, trash));
    if (!status.ok()) break;
    gone.push_back(entry.step);
    hidden.push_back(trash);
    claims.push_back(std::move(claimed));
  }
  const Status discarded = discard(files_, directory_, hidden);
  if (!status.ok()) return status;
  if (!discarded.ok()) return discarded;
  return gone;
}

}  // namespace stoker::checkpoint
