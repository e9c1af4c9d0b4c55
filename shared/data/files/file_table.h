// FileTable: the files of a data set, in their order, at about 100 bytes a file.
//
// Threads: a value; concurrent const calls are fine.
// Blocking: never: it looks at no file.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/hash.h"
#include "shared/base/status.h"

namespace stoker::data::files {

// What tells that a file is still the one that was indexed.
struct FileStamp {
  uint64_t size = 0;     // bytes
  int64_t mtime_ns = 0;  // since 1970
  uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;
};

class FileTable {
 public:
  // Names are relative to `root`. With an empty root they are paths as the user wrote them: single
  // files.
  explicit FileTable(std::string root = "") : root_(std::move(root)) {}

  void add(std::string_view name, const FileStamp& stamp);
  size_t size() const { return rows_.size(); }
  const std::string& root() const { return root_; }
  std::string_view name(size_t file) const;
  std::string path(size_t file) const;  // root and name, to open and for messages
  const FileStamp& stamp(size_t file) const { return rows_[file].stamp; }
  uint64_t name_bytes() const { return names_.size(); }
  // Its files may become longer after they were indexed; nothing after the end they had then is read.
  void allow_append() { allows_append_ = true; }
  bool allows_append() const { return allows_append_; }
  // kCorrupt, with how it differs, where what `info` says of a file is not what was indexed.
  Status check(size_t file, const struct stat& info) const;
  Status changed(size_t file, const std::string& how) const;  // "PATH: how since it was indexed; …"
  bool operator==(const FileTable&) const = default;

  // Names, sizes and times; not the root and not the inodes, so that a moved or copied data set (cp
  // -a) is the same.
  void add_to(Sha256& hash) const;

 private:
  struct Row {
    uint64_t name_end = 0;  // of its bytes in names_; they begin where the row before ends
    FileStamp stamp;
    bool operator==(const Row&) const = default;
  };
  std::string root_;
  std::string names_;
  std::vector<Row> rows_;
  bool allows_append_ = false;
};

}  // namespace stoker::data::files
