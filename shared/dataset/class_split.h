// ClassSplit: files in a folder per class, numbered as samples, with the same part taken of every
// class.
//
// A part by position over all files would take whole classes, since files are sorted by folder.
//
// Threads: immutable after construction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/dataset/file_table.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {

class ClassSplit {
 public:
  // Every name of `files` is "class/…", sorted by class.
  ClassSplit(const FileTable& files, const SplitFraction& split);

  struct Location {
    uint64_t file = 0;
    uint64_t of_class = 0;
  };
  uint64_t size() const { return classes_.empty() ? 0 : classes_.back().samples_end; }
  Location location(uint64_t sample) const;
  std::vector<std::string> names()
      const;  // of all classes, also of those that the part takes nothing of
  uint64_t classes() const { return classes_.size(); }
  uint64_t classes_without_samples() const;

 private:
  struct Class {
    std::string name;
    uint64_t files_begin = 0;  // of the part
    uint64_t samples_end = 0;
  };
  std::vector<Class> classes_;
};

}  // namespace stoker::dataset
