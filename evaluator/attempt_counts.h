// AttemptCounts: how often each checkpoint was tried, in run/eval/attempts.json.
//
// A try is written down before it begins: an evaluator that dies of a checkpoint (out of memory, a
// fault in a library) and is started again knows it, and gives that checkpoint up after as many
// tries as any other.
//
// Threads: one.
// Errors:  none: what cannot be read or written is logged, and counted in memory only.
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

  // Tries that have begun.
  int count(uint64_t step, const std::string& manifest_sha256) const;
  int begin(uint64_t step, const std::string& manifest_sha256);  // returns the count
  // A try that was stopped on request does not count.
  void undo(uint64_t step, const std::string& manifest_sha256);
  void remove(uint64_t step, const std::string& manifest_sha256);
  // Those of other steps are forgotten: their checkpoints are gone.
  void retain_only(const std::vector<uint64_t>& steps);

 private:
  using Key = std::pair<uint64_t, std::string>;
  AttemptCounts(FileSystem& files, std::string path) : files_(&files), path_(std::move(path)) {}
  void read();
  void write() const;

  FileSystem* files_;  // not owned; outlives this object
  std::string path_;
  std::map<Key, int> counts_;
};

}  // namespace stoker::evaluator
