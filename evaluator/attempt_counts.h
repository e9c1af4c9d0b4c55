// AttemptCounts: counts the evaluation attempts of each checkpoint in RUN/eval/attempts.json.
//
// An attempt is recorded before it starts. If a checkpoint crashes the evaluator (out of memory, a
// fault in a library), the restarted evaluator knows about that attempt and gives up after the
// configured maximum.
//
// Threads: one.
// Errors:  none; read and write errors are logged, and the counts are then kept in memory only.
// Crash:   the file is replaced atomically.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"

namespace stoker::evaluator {

class AttemptCounts {
 public:
  static AttemptCounts open(FileSystem& files, const std::string& path);

  // Attempts that have started.
  int count(uint64_t step, const std::string& manifest_sha256) const;
  int begin(uint64_t step, const std::string& manifest_sha256);  // returns the new count
  // For an attempt that was stopped on request and does not count.
  void undo(uint64_t step, const std::string& manifest_sha256);
  void remove(uint64_t step, const std::string& manifest_sha256);
  // Removes the counts of all other steps, whose checkpoints have been deleted.
  void retain_only(const std::vector<uint64_t>& steps);

 private:
  using Key = std::pair<uint64_t, std::string>;
  AttemptCounts(FileSystem& files, std::string path) : files_(&files), path_(std::move(path)) {}
  void read();
  void write() const;

  FileSystem* files_;  // must outlive this object
  std::string path_;
  std::map<Key, int> counts_;
};

}  // namespace stoker::evaluator
