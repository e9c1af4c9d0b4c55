// Lineage: which checkpoints the present state of a run descends from. After a resume from an earlier checkpoint,
// a rollback, or a start from nothing, the others are of a branch that the run has left: their results decide nothing
// any more.
//
// RUN/lineage.jsonl has a line for each start from nothing, for each checkpoint that was saved, with the step of the
// one that it follows, and for each that training resumed from. The ancestors are found by manifest, and can have been
// deleted.
//
// Lines can be missing: of a crash or a full disk, of a lost file, or of releases before this one, which wrote none.
// A saved line whose step follows an earlier one than that before shows a resume without a line. A checkpoint without
// a line counts as an ancestor unless the file contradicts: an ancestor has its step, or training has started or
// resumed before it.
//
// Threads: values. Only the stokerd of the run directory writes.
// Errors:  of add_…(): as write errors. A line that is not one of these is ignored: others can follow it.
// Crash:   a line follows its checkpoint; a start completes the lines that are missing.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::run {

struct CheckpointId {
  uint64_t step = 0;
  std::string manifest_sha256;

  bool operator==(const CheckpointId&) const = default;
};

struct SavedCheckpoint {
  CheckpointId id;
  // Of the checkpoint that was saved or resumed from before; nullopt: there was none.
  std::optional<uint64_t> parent_step;
};

class Lineage {
 public:
  static Lineage parse(std::string_view text);

  // Whether the checkpoint is an ancestor of the present state, or the state itself.
  bool contains(uint64_t step, const std::string& manifest_sha256) const;
  // A checkpoint that was found in the run directory: if it has no line yet, it counts.
  void add_found(const CheckpointId& checkpoint);
  // The newest checkpoint of the present branch; nullopt: there is none.
  const std::optional<CheckpointId>& newest() const { return newest_; }
  // Whether there is a line of a start or a resume.
  bool has_start() const { return has_start_; }
  // Whether it was saved after the newest start or resume.
  bool is_after_last_resume(const std::string& manifest_sha256) const {
    return after_last_resume_.contains(manifest_sha256);
  }
  bool is_known(const std::string& manifest_sha256) const {
    return parents_.contains(manifest_sha256);
  }

 private:
  struct Line;
  static std::optional<Line> parse_line(std::string_view text);
  void add(const Line& line);
  void add_saved(const Line& line);
  // Training continues from the newest checkpoint of the branch up to this step; nullopt: from nothing.
  void go_back_to(std::optional<uint64_t> step);
  void find_ancestors();

  std::map<std::string, std::optional<CheckpointId>>
      parents_;                      // by manifest, of all that are known
  std::set<std::string> ancestors_;  // manifests
  std::set<uint64_t> ancestor_steps_;
  std::set<std::string> after_last_resume_;
  std::optional<CheckpointId> newest_;
  bool has_start_ = false;
  // From this step on, training has started or resumed before a checkpoint.
  uint64_t first_left_step_ = std::numeric_limits<uint64_t>::max();
};

inline constexpr uint64_t kMaxLineageBytes = 256ull << 20;

// `path`: RunLayout::lineage_file(). Without a file, a lineage without lines. kIoError, kPermission.
Result<Lineage> read_lineage(const std::string& path);

// Unless nothing was saved since the one before.
Status add_started(FileSystem& files, const std::string& path);
// Append lines of checkpoints, in the order of their steps.
Status add_saved(FileSystem& files, const std::string& path,
                 const std::vector<SavedCheckpoint>& checkpoints);
// Unless it is the newest one of the present branch, and the file has a start.
Status add_resumed(FileSystem& files, const std::string& path, const CheckpointId& checkpoint);

}  // namespace stoker::run
