// TemporaryDirectory: a new directory that is removed with the object.
#pragma once

#include <string>

namespace stoker::test {

class TemporaryDirectory {
 public:
  // Below $TEST_TMPDIR, else the temporary directory of the system. Aborts if it cannot be created.
  TemporaryDirectory();
  explicit TemporaryDirectory(const std::string& parent);  // the same, below `parent`
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// For tests that do not depend on the disk: /dev/shm if it is writable and has 512 MiB free, else
// the default temporary directory.
std::string quick_folder();
// Copies a tree, symbolic links as links; creates the directory `to`.
void copy_tree(const std::string& from, const std::string& to);
// Writes the complete file; aborts on failure.
void write_whole(const std::string& path, const std::string& content);

}  // namespace stoker::test
