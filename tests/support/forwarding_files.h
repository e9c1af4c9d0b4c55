// ForwardingFiles: a file system that passes each operation to another one. A test overrides those that
// fail or wait.
//
// Threads: as the other file system, which must outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shared/base/file.h"

namespace stoker::test {

class ForwardingFiles : public FileSystem {
 public:
  explicit ForwardingFiles(FileSystem& files = default_file_system()) : files_(files) {}

  Result<UniqueFd> open(const std::string& path, int flags, mode_t mode) override {
    return files_.open(path, flags, mode);
  }
  Status write(int fd, std::span<const std::byte> bytes, const std::string& path) override {
    return files_.write(fd, bytes, path);
  }
  Status reserve(int fd, uint64_t bytes, const std::string& path) override {
    return files_.reserve(fd, bytes, path);
  }
  Result<size_t> read_at(int fd, uint64_t offset, std::span<std::byte> bytes,
                         const std::string& path) override {
    return files_.read_at(fd, offset, bytes, path);
  }
  Status sync(int fd, const std::string& path) override { return files_.sync(fd, path); }
  Status sync_directory(const std::string& path) override { return files_.sync_directory(path); }
  Status make_directory(const std::string& path) override { return files_.make_directory(path); }
  Status rename(const std::string& from, const std::string& to) override {
    return files_.rename(from, to);
  }
  Status rename_noreplace(const std::string& from, const std::string& to) override {
    return files_.rename_noreplace(from, to);
  }
  Status remove_file(const std::string& path) override { return files_.remove_file(path); }
  Status remove_tree(const std::string& path) override { return files_.remove_tree(path); }
  Result<uint64_t> free_bytes(const std::string& path) override { return files_.free_bytes(path); }

 private:
  FileSystem& files_;
};

}  // namespace stoker::test
