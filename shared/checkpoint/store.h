// CheckpointStore: the directory run/checkpoints: commit, find, verify, retire.
//
// Threads:  commit(), delete_checkpoints() and clean_up() from one thread of the process that holds run/LOCK;
//           the rest from any thread of any process.
// Blocking: commit() waits for the disk.
// Errors:   each says what is unchanged.
// Crash:    a checkpoint is either wholly there or not visible; what a crash leaves is named .tmp-…
//           or .trash-…, and clean_up() removes it.
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
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

// What is saved. The views must stay valid while commit() runs.
struct CheckpointContent {
  Manifest manifest;  // commit() fills in files, and created and build where empty
  TensorViews model;  // -> model.safetensors
  TensorViews optim;  // -> optimizer.safetensors
  TensorViews state;  // -> trainer_state.safetensors: generator states and the like
  TensorViews ema;    // -> ema.safetensors, averaged weights; no file where there are none
};

struct CheckpointEntry {
  uint64_t step = 0;
  std::string path;
};

// A checkpoint held open for reading: all files opened and share-locked first, so that retention on
// a local file system cannot tear it, and every byte verified against SHA256SUMS before anything is
// used.
class VerifiedCheckpoint {
 public:
  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_sha256() const { return manifest_sha256_; }
  // Opened through the verified descriptors. kNotFound: no such file in this checkpoint.
  Result<std::unique_ptr<SafetensorsFile>> open_tensors(const std::string& file_name) const;

 private:
  friend class CheckpointStore;
  struct HeldFile {
    std::string name;
    UniqueFd fd;
  };
  std::string path_;
  Manifest manifest_;
  std::string manifest_sha256_;
  std::vector<HeldFile> files_;
};

struct DeletedCheckpoints {
  std::vector<uint64_t> deleted_steps;
  std::vector<uint64_t> blocked;  // left for now: a reader has them
};

class CheckpointStore {
 public:
  // `directory` is run/checkpoints. `files` must outlive this object.
  CheckpointStore(std::string directory, FileSystem& files);

  const std::string& directory() const { return directory_; }
  static std::string checkpoint_name(uint64_t step);  // "step-000001200"
  static std::optional<uint64_t> parse_checkpoint_name(const std::string& name);

  // All that look like checkpoints (step-N directories), oldest first, not verified. Empty where
  // the directory is missing.
  Result<std::vector<CheckpointEntry>> list() const;

  // kNoSpace when the disk has not room for it now. What is there of earlier tries counts as free
  // only once it is gone.
  Status check_free_space(const CheckpointContent& content) const;

  // Writes, syncs and publishes. Returns the manifest as written only when a power cut can no
  // longer lose it. On failure nothing is visible, earlier checkpoints are unchanged, and the same
  // step may be tried again. kNoSpace also before the first write when the disk has not room for
  // it. kAlreadyExists: the step is there. kNotFound: the directory is no more where it was, or
  // another one is; nothing is made anew in its place.
  Result<Manifest> commit(const CheckpointContent& content);

  // kCorrupt: names the file and how it differs (missing, size, SHA-256). kNotFound: the directory
  // is gone. kMismatch: a newer format. kIoError.
  static Result<VerifiedCheckpoint> open_verified(const std::string& checkpoint_path,
                                                  const OnBytes& on_bytes = {});

  // Newest that verifies; `on_rejected` is told of each newer one that does not. kNotFound: there
  // are none at all. kCorrupt: there are some and all are bad. kMismatch: the newest that may be
  // valid is of a newer format; the ones before it are not tried.
  Result<VerifiedCheckpoint> open_newest(
      const std::function<void(const CheckpointEntry&, const Status&)>& on_rejected) const;

  // Deletes these: renamed to .trash-… first, so a half-deleted one is never a candidate. Never the
  // newest, never one that a reader holds locked. Steps that are not there are passed over. kNotFound
  // as commit(): nothing is deleted.
  Result<DeletedCheckpoints> delete_checkpoints(std::span<const uint64_t> steps);

  // Removes .tmp-… and .trash-… of a dead predecessor. Only under run/LOCK.
  Status clean_up();

 private:
  // Whether directory_ is still the one that was first worked in; it becomes that one.
  Status check_directory();

  std::string directory_;
  FileSystem& files_;
  UniqueFd directory_fd_;   // keeps the directory's identity; empty before the first work in it
  bool is_rooted_ = false;  // the directories above are synced
};

// The numbers that task.class_weights: balanced came to when the run began: a tensor of
// trainer_state.safetensors, F64 [classes].
inline constexpr const char* kClassWeights = "class_weights";

// None where the checkpoint has none. kCorrupt: the tensor is not what such numbers are.
Result<std::vector<double>> read_class_weights(const VerifiedCheckpoint& saved);

}  // namespace stoker::checkpoint
