// ScratchDirectory: a new folder below TMPDIR, for this user only, that ends with the object.
//
// Threads: one.
// Errors:  path() is empty if the folder cannot be created.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace stoker {

class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string_view program) {
    std::error_code error;
    const auto parent = std::filesystem::temp_directory_path(error);
    path_ = (parent / (std::string(program) + "-XXXXXX")).string();
    if (error || ::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace stoker
