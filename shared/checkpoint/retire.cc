#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "shared/checkpoint/discard.h"
#include "shared/checkpoint/names.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/sums.h"

namespace stoker::checkpoint {
namespace {

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

Result<Retired> CheckpointStore::retire(std::span<const uint64_t> steps) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, list());
  Retired retired;
  if (entries.empty() || steps.empty()) return retired;
  STOKER_RETURN_IF_ERROR(check_place());
  std::vector<std::string> hidden;
  std::vector<Claim> claims;  // until all are out of sight
  Status status;
  for (const CheckpointEntry& entry : std::span(entries).first(entries.size() - 1)) {
    if (std::ranges::count(steps, entry.step) == 0) continue;
    Claim claimed = claim(entry.path);
    if (!claimed.taken) {
      retired.held.push_back(entry.step);
      continue;
    }
    const std::string trash = std::string(kTrashPrefix) + name_of(entry.step);
    status = files_.remove_tree(join_path(directory_, trash));
    if (status.ok()) status = files_.rename(entry.path, join_path(directory_, trash));
    if (!status.ok()) break;
    retired.gone.push_back(entry.step);
    hidden.push_back(trash);
    claims.push_back(std::move(claimed));
  }
  const Status discarded = discard(files_, directory_, hidden);
  if (!status.ok()) return status;
  if (!discarded.ok()) return discarded;
  return retired;
}

}  // namespace stoker::checkpoint
