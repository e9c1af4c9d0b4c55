// CheckpointStore: the checkpoints directory of a run: commit, list, verify, delete.
//
// Threads:  commit(), delete_checkpoints() and clean_up() from one thread of the process that holds
//           run/LOCK; the rest from any thread of any process.
// Blocking: commit() waits for the disk.
// Errors:   each method documents what is unchanged on failure.
// Crash:    a checkpoint is either complete or not visible. A crash leaves directories named .tmp-…
//           or .trash-…, which clean_up() removes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/sharded_tensors.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

// The parts of the optimizer state that other processes write. commit() calls both on its thread.
class OtherShards {
 public:
  virtual ~OtherShards() = default;

  // `directory`: name of the one that is being built, in that of the store. The others can now write
  // to it.
  virtual Status begin(const std::string& directory) = 0;
  // Returns the files when all have been written and synced. An error ends the commit.
  virtual Result<std::vector<WrittenFile>> wait() = 0;
};

// Content of a checkpoint. The views must stay valid during commit().
struct CheckpointContent {
  Manifest
      manifest;  // commit() sets `files`, and `created_at` and `stoker_version` if they are empty
  TensorViews model;  // -> model.safetensors
  TensorViews optim;  // -> optimizer.safetensors, or with `num_shards` the first of them
  TensorViews state;  // -> trainer_state.safetensors: generator states and similar
  TensorViews ema;    // -> ema.safetensors: averaged weights; no file if empty

  int num_shards = 0;                   // of the optimizer state; 0: not sharded
  uint64_t optim_bytes = 0;             // of all shards; required with `num_shards`
  TensorRanges ranges;                  // of tensors of `optim` that are not complete
  OtherShards* maybe_others = nullptr;  // required with `num_shards`
  OnBytes on_bytes = {};                // the progress, on the thread of commit(); can be empty
};

// Writes part `index` of a sharded optimizer state into the directory of a checkpoint that another
// process is building. Errors: as write_hashed_files().
Result<WrittenFile> write_optimizer_shard(FileSystem& files, const std::string& directory,
                                          const CheckpointContent& content, int index);

struct CheckpointEntry {
  uint64_t step = 0;
  std::string path;
};

// Distinguishes a file from one that replaces it, and from itself after a write.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

// A checkpoint opened for reading. All files but the parts of a sharded optimizer state are opened and
// share-locked first, so that retention on a local file system cannot remove some of them, and every byte
// is verified against SHA256SUMS before anything is used. The parts, of which there can be more than a
// process may open, are opened for each read; the lock of SHA256SUMS protects them.
class VerifiedCheckpoint {
 public:
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_sha256() const { return manifest_sha256_; }
  // Opened through the verified descriptors. kNotFound: no such file in this checkpoint.
  Result<std::unique_ptr<SafetensorsFile>> open_tensors(const std::string& file_name) const;
  // The complete optimizer state, whatever number of files it has. Parts must not be read after the end
  // of this object. kCorrupt: they do not fit, or one was replaced after it was verified.
  Result<std::unique_ptr<ShardedTensors>> open_optimizer() const;

 private:
  friend class CheckpointStore;
  struct LockedFile {
    std::string name;
    UniqueFd fd;
  };
  // A file that is closed between reads.
  struct ClosedFile {
    std::string name;
    FileIdentity identity;  // of the file that was verified
  };
  std::string path_;
  Manifest manifest_;
  std::string manifest_sha256_;
  std::vector<LockedFile> files_;
  std::vector<ClosedFile> shards_;
};

// A checkpoint that was not deleted, because it cannot be locked.
struct BlockedDeletion {
  uint64_t step = 0;
  Status reason;  // kBusy: a reader has it open. Others: whether one has is unknown.
};

struct DeletedCheckpoints {
  std::vector<uint64_t> deleted_steps;
  std::vector<BlockedDeletion> blocked;
};

class CheckpointStore {
 public:
  // `directory` is run/checkpoints. `files` must outlive this object.
  CheckpointStore(std::string directory, FileSystem& files);

  const std::string& directory() const { return directory_; }
  static std::string checkpoint_name(uint64_t step);  // "step-000001200"
  static std::optional<uint64_t> parse_checkpoint_name(const std::string& name);
  // Of a directory in which commit() writes a checkpoint: ".tmp-step-…".
  static bool is_unfinished_name(const std::string& name);

  // All directories named step-N, oldest first, not verified. Empty if the directory is missing.
  Result<std::vector<CheckpointEntry>> list() const;

  // kNoSpace if the disk currently has too little free space. Leftovers of earlier attempts count
  // as used until they are removed.
  Status check_free_space(const CheckpointContent& content) const;

  // Writes, syncs and publishes a checkpoint. Returns the written manifest once the checkpoint is
  // durable. On failure nothing is visible, earlier checkpoints are unchanged, and the same step
  // can be saved again. kNoSpace also before the first write if there is too little free space.
  // kAlreadyExists: the step exists. kNotFound: the directory was moved or replaced; it is not
  // created again. kCorrupt: a file of another process is not what it has reported; and the errors of
  // OtherShards.
  Result<Manifest> commit(const CheckpointContent& content);

  // kCorrupt: with the file and the difference (missing, size, SHA-256). kNotFound: the directory
  // does not exist. kBusy: another process has locked a file exclusively; with its path and the
  // process. Retention does so for a moment before it deletes a checkpoint. kMismatch: a newer
  // format. kIoError.
  static Result<VerifiedCheckpoint> open_verified(const std::string& checkpoint_path,
                                                  const OnBytes& on_bytes = {});

  // Opens the newest checkpoint that verifies; `on_rejected` is called for each newer one that does
  // not. kNotFound: there are no checkpoints. kCorrupt: none of them is valid. kMismatch: the
  // newest that can be valid has a newer format; older ones are not tried.
  //
  // `on_locked` is called with the kBusy of open_verified(): ok opens that checkpoint again, an
  // error is returned. Without it, a locked checkpoint counts as deleted: for a process that does
  // not hold run/LOCK, retention is deleting it.
  Result<VerifiedCheckpoint> open_newest(
      const std::function<void(const CheckpointEntry&, const Status&)>& on_rejected,
      const std::function<Status(const Status&)>& on_locked = {}) const;

  // Deletes the checkpoints of these steps. They are renamed to .trash-… first, so a partially
  // deleted one is never a candidate. The newest checkpoint, and those that cannot be locked
  // exclusively, are never deleted. Missing steps are ignored. kNotFound as for commit(): nothing
  // is deleted.
  Result<DeletedCheckpoints> delete_checkpoints(std::span<const uint64_t> steps);

  // Removes .tmp-… and .trash-… directories left by a process that crashed. Requires run/LOCK.
  Status clean_up();

 private:
  // Checks that directory_ is still the directory of the first operation, or stores it on the first
  // call.
  Status check_directory();
  Status remove_unfinished(const std::string& own);

  std::string directory_;
  FileSystem& files_;
  UniqueFd directory_fd_;   // pins the identity of the directory; empty before the first operation
  bool is_rooted_ = false;  // the parent directories are synced
};

// The class weights that task.class_weights: balanced resolved to at the start of the run: a tensor
// of trainer_state.safetensors, F64 [classes].
inline constexpr const char* kClassWeights = "class_weights";

// Empty if the checkpoint has no class weights. kCorrupt: the tensor does not contain valid
// weights.
Result<std::vector<double>> read_class_weights(const VerifiedCheckpoint& saved);

}  // namespace stoker::checkpoint
