// ScratchFolder: a fresh folder for one benchmark's files, removed with everything in it.
//
// Errors: create(): kNotFound, kPermission, kNoSpace, kIoError.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"

namespace stoker::bench {

class ScratchFolder {
 public:
  // Below `dir`; where that is empty, below $TMPDIR or /tmp.
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
