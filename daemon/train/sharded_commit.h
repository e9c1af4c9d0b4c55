// ShardedCommit: commits checkpoints whose optimizer state is divided among the ranks of a group, in
// two phases. The chief builds the directory and tells the others its name. Each rank writes its file,
// syncs it and reports size and SHA-256. When all have, the chief reads and verifies the files, commits
// the checkpoint, and tells the others the result.
//
// All ranks take the same snapshots, in the same order. After an error the chief begins again, with
// another directory, into which the others write their snapshots again. A rank that has missed the end
// of a snapshot reports it as failed, and takes part in the next one.
//
// Threads:  the thread of the CheckpointWriter.
// Blocking: until all ranks have written, at most for `timeout` on the chief, and on the others for a
//           multiple of it without a message of the chief; a stop, or a rank that is known to have
//           exited, ends the wait.
// Owner:    what the constructor takes by reference must outlive this object.
// Errors:   those of CheckpointStore::commit(); of other ranks with their names. kPeerLost: a rank has
//           exited. kTimedOut: the chief has waited for too long. kCancelled: stopped.
// Crash:    of a rank before its report, or of the chief before the commit: the checkpoint is not visible,
//           see CheckpointStore. Of a rank after all have reported: none, the chief
//           commits, also if it is stopped meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/group/process_group.h"
#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"

namespace stoker::train {

struct ShardedCommitOptions {
  std::chrono::milliseconds timeout{600'000};   // for the files of the other ranks
  std::chrono::milliseconds poll_interval{20};  // of the texts of the group
  // Counted in the process, equal on all ranks: texts of an earlier object of the group are ignored.
  uint64_t segment = 1;
};

class ShardedCommit {
 public:
  ShardedCommit(group::ProcessGroup& group, checkpoint::CheckpointStore& store, FileSystem& files,
                const ShardedCommitOptions& options)
      : group_(group), store_(store), files_(files), options_(options) {}

  // On the chief one attempt. On the others all attempts of the chief for this snapshot.
  Result<checkpoint::Manifest> commit(const checkpoint::CheckpointContent& content,
                                      const std::stop_token& stop);
  // On the chief, with the result of the last attempt. Returns when all ranks know it, so that they are
  // ready for the next snapshot.
  void announce(const Result<checkpoint::Manifest>& result, const std::stop_token& stop);

 private:
  class OtherRanks;
  struct Message;

  Result<std::vector<checkpoint::WrittenFile>> collect(const std::string& directory,
                                                       const std::stop_token& stop);
  Result<checkpoint::Manifest> take_part(const checkpoint::CheckpointContent& content,
                                         const std::stop_token& stop);
  Status write_shard(const checkpoint::CheckpointContent& content, uint64_t snapshot,
                     const std::string& directory);
  Status send(const Message& message);
  // Until the rank has sent a message of this segment that `accepts` is true for.
  Result<Message> wait_for_message(int rank, const std::function<bool(const Message&)>& accepts,
                                   Deadline deadline, const std::stop_token& stop);

  group::ProcessGroup& group_;
  checkpoint::CheckpointStore& store_;
  FileSystem& files_;
  const ShardedCommitOptions options_;
  uint64_t snapshot_ = 1;  // number of the next one, or on the chief the current one
};

}  // namespace stoker::train
