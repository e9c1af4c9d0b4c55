// FileTable: the files of a dataset, in order; about 100 bytes per file.
//
// Threads:  a value; concurrent const calls are safe.
// Blocking: never; does not access the files.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/hash.h"
#include "shared/base/status.h"

namespace stoker::data::files {

// Identifies an unchanged file.
struct FileStamp {
  uint64_t size = 0;     // bytes
  int64_t mtime_ns = 0;  // since 1970-01-01 UTC
  uint64_t inode = 0;
  // Of the content or an attribute, which no program can set back; 0: not known. Not compared by ==, because
  // chmod changes it, too.
  int64_t ctime_ns = 0;
  bool operator==(const FileStamp& other) const {
    return size == other.size && mtime_ns == other.mtime_ns && inode == other.inode;
  }
};

FileStamp stamp_of(const struct stat& info);

class FileTable {
 public:
  // Names are relative to `root`. With an empty root they are the paths that the user specified
  // (single files).
  explicit FileTable(std::string root = "") : root_(std::move(root)) {}

  void add(std::string_view name, const FileStamp& stamp);
  size_t size() const { return rows_.size(); }
  const std::string& root() const { return root_; }
  std::string_view name(size_t file) const;
  std::string path(size_t file) const;  // root and name, for open() and messages
  const FileStamp& stamp(size_t file) const { return rows_[file].stamp; }
  uint64_t name_bytes() const { return names_.size(); }
  uint64_t total_bytes() const;  // of the indexed files
  // The files may be appended to after they were indexed; bytes after their indexed size are not
  // read.
  void allow_append() { allows_append_ = true; }
  // kCorrupt, with the difference, if `info` does not match the indexed stamp.
  Status check(size_t file, const struct stat& info) const;
  Status changed(size_t file, const std::string& how) const;  // "PATH: how since it was indexed; …"
  bool operator==(const FileTable&) const = default;
  // The first file of a table that is == this one whose time of change is another; size(): none.
  size_t first_touched(const FileTable& other) const;

  // Adds names, sizes and times, but not the root and the inodes, so that a moved or copied dataset
  // (cp -a) has the same hash.
  void add_to(Sha256& hash) const;

 private:
  struct Row {
    uint64_t name_end = 0;  // end of its bytes in names_; they start at the end of the previous row
    FileStamp stamp;
    bool operator==(const Row&) const = default;
  };
  std::string root_;
  std::string names_;
  std::vector<Row> rows_;
  bool allows_append_ = false;
};

}  // namespace stoker::data::files
