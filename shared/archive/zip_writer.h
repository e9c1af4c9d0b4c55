// ZipWriter: writes an archive of stored (not packed) members from front to back, each in pieces, so
// that no member has to be in memory.
//
// Threads: one object per thread.
// Errors:  those of the sink; after one the archive is not to be used.
// Format:  as PyTorch writes its archives: the checksum follows the bytes, which begin at a multiple
//          of what the caller asks for (an extra field "FB" fills up to there). ZIP64 where a length,
//          an offset or the number of members needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::archive {

class ZipWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // Begins a member of so many bytes; the one before is complete. `alignment` is at most 1024.
  Status begin(const std::string& name, uint64_t bytes, uint64_t alignment = 1);
  Status append(std::span<const std::byte> bytes);
  // A small member in one go.
  Status add(const std::string& name, const std::string& content);
  // Ends the last member and writes the directory.
  Status finish();

 private:
  struct Member {
    std::string name;
    uint64_t bytes = 0;
    uint64_t local_header = 0;
    uint32_t crc32 = 0;
    uint64_t written = 0;

    bool is_large() const;
  };

  Status put(const std::string& record);
  Status end_member();
  Status put_directory_entry(const Member& member);
  Status put_end(uint64_t directory);

  const Sink sink_;
  std::vector<Member> members_;
  uint64_t offset_ = 0;   // written so far
  bool is_open_ = false;  // the last member is not ended yet
};

}  // namespace stoker::archive
