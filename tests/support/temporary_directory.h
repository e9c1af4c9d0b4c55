// TemporaryDirectory: a fresh directory that goes away with the object.
#pragma once

#include <string>

namespace stoker::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory();                                    // aborts where none can be made
  explicit TemporaryDirectory(const std::string& parent);  // the same, below `parent`
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// For tests that the disk of the machine has no part in: a folder in memory where there is one with
// room, else the usual one.
std::string quick_folder();
// Copies a tree, symbolic links as such; the directory `to` is made.
void copy_tree(const std::string& from, const std::string& to);
// Aborts when the file cannot be written whole.
void write_whole(const std::string& path, const std::string& content);

}  // namespace stoker::test
