// ScratchFolder: a new folder for the files of one benchmark, removed with its contents.
//
// Errors: create(): kNotFound, kPermission, kNoSpace, kIoError.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"

namespace stoker::bench {

class ScratchFolder {
 public:
  // Creates the folder in `dir`, or in $TMPDIR or /tmp if `dir` is empty.
  static Result<std::shared_ptr<ScratchFolder>> create(const std::string& dir);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace stoker::bench
